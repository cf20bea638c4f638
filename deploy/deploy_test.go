// Package deploy_test holds the files of this directory, the program and docs/operations/INFRA.md together.
package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"orch/internal/config"
)

const infra = "../docs/operations/INFRA.md"

func TestDeploymentNamesRealVariables(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, v := range config.Variables() {
		known[v.Name] = true
		if v.Secret {
			known[v.Name+"_FILE"] = true
		}
	}
	files := []string{infra}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) != ".go" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		for _, name := range regexp.MustCompile(`\bORCH_[A-Z0-9_]*[A-Z0-9]`).FindAllString(read(t, path), -1) {
			if !known[name] {
				t.Errorf("%s names %s, which is no variable of orch's", path, name)
			}
		}
	}
}

func TestUnitLetsAgentsOutliveAStop(t *testing.T) {
	t.Parallel()
	unit := readUnit(t)
	for key, want := range map[string]string{
		"KillMode": "process", "Delegate": "yes", "OOMPolicy": "continue", "User": "orch", "Restart": "always", "StateDirectory": "orch",
	} {
		if got := unit[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s=%v, want %s", key, got, want)
		}
	}
	// What is removed or hidden at a stop would be missed by what goes on.
	for _, key := range []string{
		"PrivateTmp", "RuntimeDirectory", "PrivatePIDs", "PrivateUsers", "ProtectProc", "ProcSubset", "ProtectControlGroups", "DynamicUser",
	} {
		if got, set := unit[key]; set {
			t.Errorf("%s=%v is set", key, got)
		}
	}
	if !slices.Contains(unit["Environment"], "ORCH_ROOT=%S/"+unit["StateDirectory"][0]) {
		t.Error("the data root isn't the service's state directory")
	}
}

// TestUnitHandsOverItsCredentials also looks at the pairs that are commented out.
func TestUnitHandsOverItsCredentials(t *testing.T) {
	t.Parallel()
	unit := read(t, "orch.service")
	loaded := regexp.MustCompile(`(?m)^#?LoadCredential=([a-z-]+):/etc/orch/([a-z-]+)\n#?Environment=(ORCH_\w+)_FILE=%d/([a-z-]+)$`).FindAllStringSubmatch(unit, -1)
	var secrets []string
	for _, l := range loaded {
		if l[1] != l[2] || l[1] != l[4] {
			t.Errorf("%s is loaded from %s and read from %s", l[1], l[2], l[4])
		}
		secrets = append(secrets, l[3])
	}
	slices.Sort(secrets)
	if want := []string{"ORCH_API_TOKEN", "ORCH_DATABASE_URL", "ORCH_TELEGRAM_BOT_TOKEN"}; !slices.Equal(secrets, want) {
		t.Errorf("credentials for %v, want %v", secrets, want)
	}
}

func TestComposeKeepsThePairingAndItsSecrets(t *testing.T) {
	t.Parallel()
	compose := readCompose(t)
	orch, postgres := compose.Services["orch"], compose.Services["database"]
	if orch.Hostname == "" {
		t.Error("orch has no host name of its own: each new container would look like a copy of the data root elsewhere")
	}
	if orch.DependsOn["database"].Condition != "service_healthy" || len(postgres.Healthcheck.Test) == 0 {
		t.Error("orch doesn't wait for a healthy database")
	}
	if !slices.Contains(orch.Volumes, "root:/var/lib/orch") || !strings.Contains(read(t, "Dockerfile"), "ENV ORCH_ROOT=/var/lib/orch\n") {
		t.Error("the data root isn't on a volume")
	}
	if !strings.HasPrefix(orch.Environment["ORCH_HTTP_ADDR"], "0.0.0.0:") || orch.Environment["ORCH_API_TOKEN_FILE"] == "" {
		t.Error("the API can't be reached from outside of the container, or by everybody")
	}
	for name, service := range compose.Services {
		for variable, value := range service.Environment {
			secret, isFile := strings.CutPrefix(value, "/run/secrets/")
			if !isFile {
				continue
			}
			if _, declared := compose.Secrets[secret]; !strings.HasSuffix(variable, "_FILE") || !declared || !slices.Contains(service.Secrets, secret) {
				t.Errorf("%s: %s=%s names no secret that it has", name, variable, value)
			}
		}
	}
}

// TestComposeBuildsTheImageForItsUser: what may be said to the build can be said to Compose.
func TestComposeBuildsTheImageForItsUser(t *testing.T) {
	t.Parallel()
	args := readCompose(t).Services["orch"].Build.Args
	for _, arg := range regexp.MustCompile(`(?m)^ARG (\w+)=(\S+)$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		if want := "${" + arg[1] + ":-" + arg[2] + "}"; arg[1] != "GO_VERSION" && args[arg[1]] != want {
			t.Errorf("compose builds with %s=%s, want %s", arg[1], args[arg[1]], want)
		}
	}
}

// TestGitLeavesAloneWhatIsBesideCompose: secrets, or repositories of others, are in no commit by mistake.
func TestGitLeavesAloneWhatIsBesideCompose(t *testing.T) {
	t.Parallel()
	compose := readCompose(t)
	beside := []string{".env", "compose.override.yaml"}
	for _, secret := range compose.Secrets {
		beside = append(beside, filepath.Dir(secret.File)+"/")
	}
	for _, file := range compose.Services["orch"].EnvFile {
		beside = append(beside, file.Path)
	}
	for _, volume := range compose.Services["orch"].Volumes {
		if path, isBind := strings.CutPrefix(volume, "./"); isBind {
			path, _, _ = strings.Cut(path, ":")
			beside = append(beside, path+"/")
		}
	}
	ignored := strings.Split(read(t, "../.gitignore"), "\n")
	for _, path := range beside {
		if !slices.Contains(ignored, "/deploy/"+path) {
			t.Errorf("git doesn't ignore deploy/%s", path)
		}
	}
}

// TestBuildFetchesNoMoreThanItSays: neither another image nor, by a syntax line, a front end.
func TestBuildFetchesNoMoreThanItSays(t *testing.T) {
	t.Parallel()
	for _, line := range regexp.MustCompile(`(?m)^(?:FROM|# syntax=|.* --from=).*$`).FindAllString(read(t, "Dockerfile"), -1) {
		if !regexp.MustCompile(`^FROM (golang|debian):|--from=build `).MatchString(line) {
			t.Errorf("INFRA.md doesn't say that the build fetches: %s", line)
		}
	}
	if want := "The build fetches the images `golang` and `debian`, "; !strings.Contains(read(t, infra), want) {
		t.Errorf("INFRA.md doesn't say %q", want)
	}
}

func TestImageIsBuiltWithTheModulesGo(t *testing.T) {
	t.Parallel()
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	image := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\S+)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if module == nil || image == nil || module[1] != image[1] {
		t.Errorf("go.mod says %v, the Dockerfile %v", module, image)
	}
}

func TestImageRunsAsNobodySpecialUnderAnInit(t *testing.T) {
	t.Parallel()
	file := read(t, "Dockerfile")
	for what, pattern := range map[string]string{
		"a user of its own":             `(?m)^USER orch$`,
		"an init that reaps":            `(?m)^ENTRYPOINT \["/usr/bin/tini", "--", "orch"\]$`,
		"agents ended by a stop":        `(?m)^CMD \["serve", "--kill-agents"\]$`,
		"a check of its readiness":      `HEALTHCHECK (?s:.*)curl .*--unix-socket "\$ORCH_ROOT/orch.sock" http://orch/readyz`,
		"the programs that orch starts": `ca-certificates curl git git-lfs postgresql-17 tini`,
		"the version in the program":    `-X orch/internal/app\.Version=`,
	} {
		if !regexp.MustCompile(pattern).MatchString(file) {
			t.Errorf("the image lacks %s: no %s", what, pattern)
		}
	}
	// The build has what the program is made of.
	ignored := strings.Split(read(t, "Dockerfile.dockerignore"), "\n")
	for _, part := range []string{"go.mod", "go.sum", "api", "cmd", "internal", "migrations"} {
		if !slices.Contains(ignored, "!"+part) {
			t.Errorf("%s isn't copied into the build", part)
		}
	}
}

type compose struct {
	Services map[string]struct {
		Build struct {
			Args map[string]string `yaml:"args"`
		} `yaml:"build"`
		EnvFile []struct {
			Path string `yaml:"path"`
		} `yaml:"env_file"` //nolint:tagliatelle // as compose has it
		Hostname    string            `yaml:"hostname"`
		Environment map[string]string `yaml:"environment"`
		Secrets     []string          `yaml:"secrets"`
		Volumes     []string          `yaml:"volumes"`
		Healthcheck struct {
			Test []string `yaml:"test"`
		} `yaml:"healthcheck"`
		DependsOn map[string]struct {
			Condition string `yaml:"condition"`
		} `yaml:"depends_on"` //nolint:tagliatelle // as compose has it
	} `yaml:"services"`
	Secrets map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
}

func readCompose(t *testing.T) compose {
	t.Helper()
	var c compose
	if err := yaml.Unmarshal([]byte(read(t, "compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Services) == 0 {
		t.Fatal("compose.yaml has no services")
	}
	return c
}

// readUnit gives the values of each key; a key may be set several times.
func readUnit(t *testing.T) map[string][]string {
	t.Helper()
	unit := map[string][]string{}
	for line := range strings.Lines(read(t, "orch.service")) {
		line = strings.TrimSpace(line)
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			unit[key] = append(unit[key], value)
		}
	}
	return unit
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
