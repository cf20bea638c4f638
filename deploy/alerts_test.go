package deploy_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/api"
	"orch/internal/alert"
	"orch/internal/lifespan"
	"orch/internal/metrics"
)

func TestRulesAndDashboardNameRealMetrics(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/orch.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{}
	for _, rule := range rules(t) {
		expressions["rule "+rule.Alert] = rule.Expr
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expressions["panel "+panel.Title] += "\n" + target.Expr
		}
	}
	names := metricNames(t)
	shown := map[string]bool{}
	for where, expression := range expressions {
		found := regexp.MustCompile(`\borch_\w+`).FindAllString(expression, -1)
		for _, name := range found {
			shown[name] = true
			if !slices.Contains(names, name) && !slices.Contains(names, part(name)) {
				t.Errorf("%s: no metric is named %s", where, name)
			}
		}
		if len(found) == 0 && !strings.Contains(expression, `up{job="orch"}`) {
			t.Errorf("%s looks at nothing of orch: %s", where, expression)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "orch_") && !slices.ContainsFunc([]string{name, name + "_bucket", name + "_count", name + "_sum"}, func(s string) bool { return shown[s] }) &&
			name != "orch_jobs_total" { // counts what the panels of tasks and runs tell better
			t.Errorf("neither a rule nor the dashboard looks at %s", name)
		}
	}
}

// metricNames asks no database: a pool connects when it is used.
func metricNames(t *testing.T) []string {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "host=/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	none := func() []string { return nil }
	m, err := metrics.New(metrics.Config{
		Queue:    func(context.Context) (api.Queue, error) { return api.Queue{}, nil },
		Services: func() []lifespan.Status { return nil }, Agents: none, Repos: none, Pool: pool,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m.Names()
}

// part is the histogram that a series belongs to.
func part(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return base
		}
	}
	return name
}

func TestEachRuleHasItsRunbook(t *testing.T) {
	t.Parallel()
	doc := read(t, infra)
	var names []string
	for _, rule := range rules(t) {
		names = append(names, rule.Alert)
		if !section(doc, rule.Alert) {
			t.Errorf("INFRA.md says nothing about %s", rule.Alert)
		}
		if want := "docs/operations/INFRA.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %s, want %s", rule.Alert, rule.Annotations["runbook"], want)
		}
		if rule.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, rule.Labels["severity"]) {
			t.Errorf("%s lacks a summary or a severity", rule.Alert)
		}
	}
	for _, told := range regexp.MustCompile(`(?m)^#### (Orch\w+)$`).FindAllStringSubmatch(doc, -1) {
		if !slices.Contains(names, told[1]) {
			t.Errorf("INFRA.md tells of %s, and no rule has that name", told[1])
		}
	}
}

func TestEachKindOfAlertIsExplained(t *testing.T) {
	t.Parallel()
	doc := read(t, infra)
	var kinds []string
	for _, kind := range alert.Kinds() {
		kinds = append(kinds, string(kind))
		if !section(doc, string(kind)) {
			t.Errorf("INFRA.md says nothing about %s", kind)
		}
	}
	for _, told := range regexp.MustCompile(`(?m)^#### ([a-z_]+)$`).FindAllStringSubmatch(doc, -1) {
		if !slices.Contains(kinds, told[1]) {
			t.Errorf("INFRA.md tells of %s, and no alert is of that kind", told[1])
		}
	}
}

// section says whether a heading is followed by what it means, where to look, and what to type.
func section(doc, name string) bool {
	_, rest, found := strings.Cut(doc, "\n#### "+name+"\n")
	text, _, _ := strings.Cut(rest, "\n#")
	return found && strings.Contains(text, "**Look**") && strings.Contains(text, "**Type**") && len(text) > 150
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("alerts.yaml has no rules")
	}
	return all
}
