package httpapi_test

import (
	"net/http"
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
