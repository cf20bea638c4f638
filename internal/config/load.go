package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

const (
	maxSecretFile = 64 << 10
	maxAgentSlots = 4
)

// Load reads the environment of the process. overrides are values by variable name that win over it: what was said
// on the command line. warnings name variables that look like orch's and aren't. Every value that can't be read is
// part of err.
func Load(overrides map[string]string) (cfg *Config, warnings []string, err error) {
	cfg = &Config{}
	var problems []error
	for _, section := range cfg.sections() {
		problems = append(problems, process(section))
	}
	given := map[string]bool{}
	for _, f := range cfg.fields() {
		isGiven, err := f.finish(overrides)
		given[f.Name] = isGiven
		problems = append(problems, err)
	}
	for name := range overrides {
		if _, known := given[name]; !known {
			problems = append(problems, fmt.Errorf("override of the unknown variable %s", name))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	if err := cfg.derive(given); err != nil {
		return nil, nil, err
	}
	return cfg, unknownVariables(os.Environ()), nil
}

// process reads one section, so that a bad value in one doesn't hide a bad value in another.
func process(section any) error {
	err := envconfig.Process("", section)
	if parse, ok := errors.AsType[*envconfig.ParseError](err); ok {
		return &ValueError{Variable: parse.KeyName, Value: parse.Value, Allowed: allowedOf(parse.Err)}
	}
	return err
}

// finish gives a field what envconfig can't: an override, the content of a secret's file, and the default of a
// variable that is set but empty. given is false when the value is a default.
func (f field) finish(overrides map[string]string) (given bool, err error) {
	if value, ok := overrides[f.Name]; ok && value != "" {
		return true, f.set(value)
	}
	value := os.Getenv(f.Name)
	if f.Secret {
		path := os.Getenv(f.Name + fileSuffix)
		switch {
		case path != "" && value != "":
			return false, fmt.Errorf("%s and %s%s are both set: set one of them", f.Name, f.Name, fileSuffix)
		case path != "":
			secret, err := readSecret(path)
			if err != nil {
				return false, fmt.Errorf("%s%s=%q can't be used: %w", f.Name, fileSuffix, path, err)
			}
			return true, f.set(secret)
		}
	}
	if value != "" {
		return true, nil // envconfig has read it
	}
	return false, f.set(f.Default)
}

// readSecret reads a file that holds nothing but a secret; line ends after it are an editor's.
func readSecret(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err // the caller names the path
		}
		return "", err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("read it: %w", err)
	}
	secret := strings.TrimRight(string(content), "\r\n")
	switch {
	case len(content) > maxSecretFile:
		return "", fmt.Errorf("the file is larger than %d bytes", maxSecretFile)
	case secret == "":
		return "", errors.New("the file is empty")
	}
	return secret, nil
}

// derive fills in the defaults that depend on other values or on the machine.
func (c *Config) derive(given map[string]bool) error {
	if c.Data.Root == "" {
		root, err := defaultRoot()
		if err != nil {
			return err
		}
		c.Data.Root = root
	}
	root, err := filepath.Abs(c.Data.Root)
	if err != nil {
		return fmt.Errorf("make ORCH_ROOT absolute: %w", err)
	}
	c.Data.Root = root
	c.Data.FileGiven = given["ORCH_CONFIG"]
	if !c.Data.FileGiven {
		c.Data.File = filepath.Join(root, "orch.yaml")
	}
	if c.Data.File, err = filepath.Abs(c.Data.File); err != nil {
		return fmt.Errorf("make ORCH_CONFIG absolute: %w", err)
	}
	if !given["ORCH_AUTO_MIGRATE"] {
		c.Database.AutoMigrate = Flag(c.Database.Private())
	}
	if !given["ORCH_DATABASE_LISTEN_URL"] {
		c.Database.ListenURL = c.Database.URL
	}
	if !given["ORCH_MAX_CONCURRENCY"] {
		c.Worker.MaxConcurrency = Count(min(maxAgentSlots, max(1, runtime.NumCPU()/2)))
	}
	return nil
}

func defaultRoot() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/orch", nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "orch"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("ORCH_ROOT isn't set and there is no home directory to put the data root in: %w", err)
	}
	return filepath.Join(home, ".local", "state", "orch"), nil
}

// Unknown answers the names in GateRepos that aren't among repos, the configured ones.
func (m Merge) Unknown(repos []string) []string {
	var unknown []string
	for _, name := range m.GateRepos {
		if !slices.Contains(repos, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
