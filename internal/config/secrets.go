package config

import (
	"net/url"
	"reflect"
	"regexp"
	"strings"
)

// Revealed is a value that must not appear in anything that orch keeps.
type Revealed struct{ Variable, Value string }

// Secrets reveals the values of all secret variables, and the passwords within them.
func (c *Config) Secrets() []Revealed {
	var all []Revealed
	add := func(variable, value string) {
		if value != "" {
			all = append(all, Revealed{variable, value})
		}
	}
	for _, f := range c.fields() {
		secret, ok := reflect.TypeAssert[Secret](f.value)
		if !ok {
			continue
		}
		add(f.Name, secret.Reveal())
		for _, password := range passwords(secret.Reveal()) {
			add(f.Name, password)
		}
	}
	return all
}

// passwords finds those of a database's address, as they are and as they are written there.
func passwords(address string) []string {
	if !strings.Contains(address, "://") {
		// user=me password='it''s' host=…
		found := regexp.MustCompile(`\bpassword\s*=\s*(?:'((?:\\.|[^'\\])*)'|(\S+))`).FindStringSubmatch(address)
		if found == nil {
			return nil
		}
		written := found[1] + found[2]
		return []string{written, regexp.MustCompile(`\\(.)`).ReplaceAllString(written, "$1")}
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	list := []string{u.Query().Get("password")}
	if password, ok := u.User.Password(); ok {
		_, written, _ := strings.Cut(u.User.String(), ":")
		list = append(list, password, written)
	}
	return list
}
