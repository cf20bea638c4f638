package config_test

import (
	"regexp"
	"slices"
	"testing"

	"orch/internal/config"
)

// TestDocumentation holds the code, .env.example and docs/configuration.md together.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	type row struct{ name, value string }
	var wantEnv, wantDocs []row
	for _, v := range config.Variables() {
		if (v.Default == "") == (v.Shown == "") {
			t.Errorf("%s needs either a default or words for it", v.Name)
		}
		wantEnv = append(wantEnv, row{v.Name, v.Default})
		wantDocs = append(wantDocs, row{v.Name, v.Default + v.Shown})
	}
	find := func(path, pattern string) (rows []row) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1) {
			rows = append(rows, row{match[1], match[2]})
		}
		return rows
	}
	if got := find("../../.env.example", `(?m)^(ORCH_\w+)=(.*)$`); !slices.Equal(got, wantEnv) {
		t.Errorf(".env.example has\n%v\nand the code\n%v", got, wantEnv)
	}
	if got := find("../../docs/configuration.md", "(?m)^\\| `(ORCH_\\w+)` \\| (.*?) \\| .+ \\|$"); !slices.Equal(got, wantDocs) {
		t.Errorf("docs/configuration.md has\n%v\nand the code\n%v", got, wantDocs)
	}
}
