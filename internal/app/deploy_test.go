package app

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"orch/internal/app/database"
	"orch/internal/config"
	"orch/internal/lifespan"
)

// TestOperatorsAreToldOfEachService holds the table in INFRA.md and the services of a server together.
func TestOperatorsAreToldOfEachService(t *testing.T) {
	t.Parallel()
	stages := map[int][]string{}
	for _, s := range services(t) {
		stages[s.Stage] = append(stages[s.Stage], s.Name)
	}
	var want []string
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		slices.Sort(stages[stage])
		want = append(want, strings.Join(stages[stage], " "))
	}
	var told []string
	for n, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(file(t, "docs/operations/INFRA.md"), -1) {
		if row[1] != strconv.Itoa(n+1) {
			t.Errorf("row %d is called stage %s", n+1, row[1])
		}
		names := strings.Fields(strings.NewReplacer("`", "", ",", " ").Replace(row[2]))
		slices.Sort(names)
		told = append(told, strings.Join(names, " "))
	}
	if !slices.Equal(told, want) {
		t.Errorf("INFRA.md has the stages\n%q\nand a server\n%q", told, want)
	}
}

// TestServiceManagersWaitLongEnough: whoever stops orch must not kill it while its services stop one after the other.
func TestServiceManagersWaitLongEnough(t *testing.T) {
	t.Parallel()
	longest := map[int]time.Duration{}
	for _, s := range services(t) {
		longest[s.Stage] = max(longest[s.Stage], s.StopTimeout)
	}
	var need time.Duration
	for _, d := range longest {
		need += d
	}
	for path, pattern := range map[string]string{
		"deploy/orch.service":      `(?m)^TimeoutStopSec=(\d+m)in$`,
		"deploy/compose.yaml":      `(?m)^  orch:(?s:.*)^    stop_grace_period: (\d+m)$`,
		"docs/operations/INFRA.md": `--stop-timeout (\d+) `,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(file(t, path))
		if found == nil {
			t.Errorf("%s says nothing about it", path)
			continue
		}
		allowed, err := time.ParseDuration(strings.TrimSuffix(found[1], "m") + map[bool]string{true: "m", false: "s"}[strings.HasSuffix(found[1], "m")])
		if err != nil || allowed < need {
			t.Errorf("%s allows %s, a stop may take %s", path, found[1], need)
		}
	}
}

// services of a server with a private PostgreSQL, as it is without settings.
func services(t *testing.T) []lifespan.Service {
	t.Helper()
	cfg, _, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(Options{Config: cfg})
	return append(append(s.ground(), s.watchers()...), s.workerService(),
		lifespan.Service{Name: servicePostgres, Stage: stagePostgres, StopTimeout: database.StopTimeout},
		lifespan.Service{Name: serviceHTTP, Stage: stageHTTP, StopTimeout: 10 * time.Second})
}

func file(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
