package httpapi_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi"
)

func TestRunAndItsLog(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := s.AddRun()
	write(t, run, "hello\nworld\n")
	path := "/runs/" + run.ID.String()
	if got := decode[api.Run](t, s.ask(t, http.MethodGet, path, ""), http.StatusOK); got.LogBytes != 12 {
		t.Errorf("got %+v", got)
	}
	for query, want := range map[string]string{
		"":                 "hello\nworld\n|0 12 12",
		"?offset=6":        "world\n|6 12 12",
		"?offset=-3":       "ld\n|9 12 12",
		"?offset=-99":      "hello\nworld\n|0 12 12",
		"?offset=12":       "|12 12 12",
		"?offset=99":       "|12 12 12",
		"?limit=5":         "hello|0 5 12",
		"?offset=2&limit=": "bad_parameter",
		"?limit=0":         "bad_parameter",
		"?offset=x":        "bad_parameter",
		"?follow=maybe":    "bad_parameter",
	} {
		checkLog(t, s.ask(t, http.MethodGet, path+"/log"+query, ""), query, want)
	}
	run.Drop(6)
	checkLog(t, s.ask(t, http.MethodGet, path+"/log?offset=2", ""), "after rotation", "world\n|6 12 12")
	write(t, run, "\xff\x00<script>")
	got := s.ask(t, http.MethodGet, path+"/log?offset=12", "")
	if string(got.body) != "\xff\x00<script>" || got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("bytes didn't survive: %q as %s", got.body, got.Header.Get("Content-Type"))
	}
	unknown := "/runs/" + uuid.NewString()
	for _, path := range []string{unknown, unknown + "/log", unknown + "/log?follow=1"} {
		s.ask(t, http.MethodGet, path, "").problem(t, http.StatusNotFound, "not_found")
	}
	s.ask(t, http.MethodGet, "/runs/12", "").problem(t, http.StatusBadRequest, "bad_parameter")
}

func TestRunShowsWhatIsHereOfIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	want := api.Run{ID: uuid.New(), State: api.RunRunning, Here: &api.RunHere{Argv: []string{"claude", "-p"}, EnvNames: []string{"PATH"}, Ports: 20, LogEnd: 9}}
	s.SetRuns("demo-1", want)
	got := decode[api.Run](t, s.ask(t, http.MethodGet, "/runs/"+want.ID.String(), ""), http.StatusOK)
	if got.Here == nil || got.Here.Argv[0] != "claude" || got.Here.Ports != 20 || got.Here.LogEnd != 9 {
		t.Errorf("got %+v", got.Here)
	}
}

func TestRunsOfATaskByPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddTask(api.Task{Key: "demo-1"})
	var runs []api.Run
	for n := range int64(5) {
		runs = append(runs, api.Run{ID: uuid.New(), JobID: 1 + n%2, State: api.RunFinished})
	}
	s.SetRuns("demo-1", runs...)
	ids := func(query string) string {
		var text strings.Builder
		for cursor := ""; ; {
			list := decode[api.RunList](t, s.ask(t, http.MethodGet, "/tasks/demo-1/runs?limit=2"+query+cursor, ""), http.StatusOK)
			for _, run := range list.Items {
				text.WriteString(strconv.Itoa(slices.IndexFunc(runs, func(r api.Run) bool { return r.ID == run.ID })))
			}
			if list.NextCursor == nil {
				return text.String()
			}
			text.WriteString(" ")
			cursor = "&cursor=" + *list.NextCursor
		}
	}
	if all, one := ids(""), ids("&job=1"); all != "01 23 4" || one != "02 4" {
		t.Errorf("all are %q, of one job %q", all, one)
	}
	if list := decode[api.RunList](t, s.ask(t, http.MethodGet, "/tasks/demo-1/runs?job=9", ""), http.StatusOK); list.Items == nil || len(list.Items) > 0 {
		t.Errorf("of another job %+v", list)
	}
	s.ask(t, http.MethodGet, "/tasks/demo-2/runs", "").problem(t, http.StatusNotFound, "not_found")
	for _, query := range []string{"cursor=x", "cursor=MQ", "limit=0", "job=0", "job=x"} {
		s.ask(t, http.MethodGet, "/tasks/demo-1/runs?"+query, "").problem(t, http.StatusBadRequest, "bad_parameter")
	}
}

func checkLog(t *testing.T, got answer, what, want string) {
	t.Helper()
	if want == "bad_parameter" {
		got.problem(t, http.StatusBadRequest, want)
		return
	}
	h := got.Header
	text := string(got.body) + "|" + strings.Join([]string{h.Get("Orch-Log-Offset"), h.Get("Orch-Log-Next"), h.Get("Orch-Log-End")}, " ")
	if got.StatusCode != http.StatusOK || text != want {
		t.Errorf("%s: got %d %q, want %q", what, got.StatusCode, text, want)
	}
}

func write(t *testing.T, run interface{ Write([]byte) (int, error) }, text string) {
	t.Helper()
	if _, err := run.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

var exited = httpapi.RunEnd{Ended: "exited", ExitCode: new(0), Outcome: "ok"}
