package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"orch/api"
)

func TestRestore(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddTask(api.Task{ID: 1, Key: "demo-1", State: api.TaskBlocked})
	s.AddTask(api.Task{ID: 2, Key: "demo-2", State: api.TaskActive})
	const path = "/tasks/demo-1/restore"
	list := decode[api.SalvageList](t, s.ask(t, http.MethodGet, "/tasks/demo-1/salvages", ""), http.StatusOK)
	if len(list.Items) != 2 || list.Items[0].Number != 1 {
		t.Errorf("got %+v", list)
	}
	if none := decode[api.SalvageList](t, s.ask(t, http.MethodGet, "/tasks/demo-2/salvages", ""), http.StatusOK); none.Items == nil || len(none.Items) > 0 {
		t.Errorf("got %+v", none)
	}
	for body, want := range map[string]api.Restored{
		`{}`: {Salvage: 2, Branch: "orch/restored/demo-1-2"}, `{"salvage":1,"branch":"x"}`: {Salvage: 1, Branch: "x"},
	} {
		got := decode[api.Restored](t, s.tell(t, http.MethodPost, path, body), http.StatusOK)
		if got.Salvage != want.Salvage || got.Branch != want.Branch {
			t.Errorf("%s: got %+v", body, got)
		}
	}
	for body, code := range map[string]string{
		`{"salvage":0}`: "invalid", `{"branch":""}`: "invalid", `{"branch":"` + strings.Repeat("x", 201) + `"}`: "invalid",
		`{"ref":"x"}`: "unknown_field",
	} {
		s.tell(t, http.MethodPost, path, body).problem(t, http.StatusUnprocessableEntity, code)
	}
	s.tell(t, http.MethodPost, path, `{"branch":"main"}`).problem(t, http.StatusConflict, "branch_taken")
	s.tell(t, http.MethodPost, path, `{"salvage":3}`).problem(t, http.StatusNotFound, "no_salvage")
	s.tell(t, http.MethodPost, "/tasks/demo-2/restore", `{}`).problem(t, http.StatusNotFound, "no_salvage")
	s.tell(t, http.MethodPost, "/tasks/demo-9/restore", `{}`).problem(t, http.StatusNotFound, "not_found")
	s.ask(t, http.MethodGet, "/tasks/demo-9/salvages", "").problem(t, http.StatusNotFound, "not_found")
}
