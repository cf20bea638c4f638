package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/httpapi"
)

func TestCreateTask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	got := s.ask(t, http.MethodPost, "/tasks", `{"repo":"demo","title":" Fix it ","body":"please","base":"release/1.x","priority":5,"max_cost_usd":2.5,"land":false}`)
	task := decode[api.Task](t, got, http.StatusCreated)
	if task.Key != "demo-1" || got.Header.Get("Location") != "/tasks/demo-1" || task.Source != "api" {
		t.Errorf("got %s at %s", got.body, got.Header.Get("Location"))
	}
	made := s.Created()[0]
	if made.MaxCostUSD == nil || *made.MaxCostUSD != 2.5 || made.Title != "Fix it" || made.Body != "please" || made.Base != "release/1.x" || made.Priority != 5 || made.Land == nil || *made.Land {
		t.Errorf("created %+v", made)
	}
	s.tell(t, http.MethodPost, "/tasks", `{"repo":"demo","title":"x"}`)
	if made := s.Created()[1]; made.Source != "cli" || made.Land != nil || made.Adhoc != nil {
		t.Errorf("created %+v", made)
	}
}

func TestAdhocNeedsTheSocket(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.Token = "secret" })
	body := `{"title":"x","adhoc":{"path":"/src/demo","test_command":"make test","agent_command":"./agent","agent_env":["API_KEY"],"setup":"make deps","timeout_s":1.5}}`
	s.ask(t, http.MethodPost, "/tasks", body, "Authorization", "Bearer secret").problem(t, http.StatusForbidden, "adhoc_needs_socket")
	if n := len(s.Created()); n != 0 {
		t.Fatalf("%d tasks were made", n)
	}
	decode[api.Task](t, s.tell(t, http.MethodPost, "/tasks", body), http.StatusCreated)
	want := httpapi.Adhoc{
		Path: "/src/demo", TestCommand: "make test", AgentCommand: "./agent", AgentEnv: []string{"API_KEY"}, Setup: "make deps", Timeout: 1500 * time.Millisecond,
	}
	if made := s.Created()[0]; made.Adhoc == nil || !reflect.DeepEqual(*made.Adhoc, want) {
		t.Errorf("created %+v", made.Adhoc)
	}
}

func TestBadTasksAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := serve(t)
	long := strings.Repeat("x", 301)
	for body, want := range map[string]string{
		``: "bad_json", `[]`: "bad_json", `null`: "bad_json", `"x"`: "bad_json", `{`: "bad_json", `{"title":`: "bad_json",
		`{"title":"x"}{}`: "bad_json", `{"title":"x"} x`: "bad_json", `{"title":'x'}`: "bad_json",
		`{"repo":"d","title":"x","titel":"y"}`:                                               "unknown_field titel",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"shell":"zsh"}}`:                   "unknown_field shell",
		`{"repo":"d","title":1}`:                                                             "invalid title",
		`{"repo":"d","title":"x","priority":1.5}`:                                            "invalid priority",
		`{"repo":"d","title":"x","priority":1e99}`:                                           "invalid priority",
		`{"repo":"d","title":"x","land":"no"}`:                                               "invalid land",
		`{"repo":"d"}`:                                                                       "invalid title",
		`{"repo":"d","title":"  "}`:                                                          "invalid title",
		`{"title":"x"}`:                                                                      "invalid repo",
		`{}`:                                                                                 "invalid repo title",
		`{"repo":"d","title":"a\nb"}`:                                                        "invalid title",
		`{"repo":"d","title":"a\u0000b"}`:                                                    "invalid title",
		`{"repo":"d","title":"a\u001b[2Jb"}`:                                                 "invalid title",
		`{"repo":"d","title":"x","body":"\u0000"}`:                                           "invalid body",
		`{"repo":"d","title":"` + long + `"}`:                                                "invalid title",
		`{"repo":"d","title":"x","priority":101}`:                                            "invalid priority",
		`{"repo":"d","title":"x","max_cost_usd":0}`:                                          "invalid max_cost_usd",
		`{"repo":"d","title":"x","max_cost_usd":2000000}`:                                    "invalid max_cost_usd",
		`{"repo":"d","title":"x","base":"-x"}`:                                               "invalid base",
		`{"repo":"d","title":"x","base":"a..b"}`:                                             "invalid base",
		`{"repo":"d","title":"x","base":"a.lock/b"}`:                                         "invalid base",
		`{"title":"x","adhoc":{"path":"a","no_test":true}}`:                                  "invalid adhoc.path",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"agent_env":["1X"]}}`:              "invalid adhoc.agent_env",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"agent_env":["A=b"]}}`:             "invalid adhoc.agent_env",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"agent_env":"A"}}`:                 "invalid adhoc.agent_env",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"agent_env":["A","ORCH_X"]}}`:      "invalid adhoc.agent_env",
		`{"title":"x","adhoc":{"path":"/a"}}`:                                                "invalid adhoc.test_command",
		`{"title":"x","adhoc":{"path":"/a","no_test":false}}`:                                "invalid adhoc.test_command",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"test_command":"x"}}`:              "invalid adhoc.test_command",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"timeout_s":0}}`:                   "invalid adhoc.timeout_s",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"timeout_s":1e300}}`:               "invalid adhoc.timeout_s",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"timeout_s":-1}}`:                  "invalid adhoc.timeout_s",
		`{"title":"x","adhoc":{"path":"/a","no_test":true,"agent":"a","agent_command":"b"}}`: "invalid adhoc.agent_command",
	} {
		got := s.tell(t, http.MethodPost, "/tasks", body, "Content-Type", "application/json")
		code, fields, _ := strings.Cut(want, " ")
		status := http.StatusUnprocessableEntity
		if code == "bad_json" {
			status = http.StatusBadRequest
		}
		problem := got.problem(t, status, code)
		var named []string
		if problem.Errors != nil {
			for _, field := range *problem.Errors {
				named = append(named, field.Field)
				if field.Message == "" {
					t.Errorf("%s: nothing says what is allowed", body)
				}
			}
		}
		if strings.Join(named, " ") != fields {
			t.Errorf("%s: %v are named, want %s (%s)", body, named, fields, problem.Detail)
		}
	}
	if n := len(s.Created()); n != 0 {
		t.Errorf("%d tasks were made", n)
	}
}

// A title is limited in bytes, and what is wrong with it is named.
func TestTitles(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for title, want := range map[string]string{
		strings.Repeat("ä", 151): "must not be longer than 300 bytes",
		`a\tb`:                   "must be one line of UTF-8 text without control characters",
	} {
		got := s.ask(t, http.MethodPost, "/tasks", `{"repo":"d","title":"`+title+`"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
		if got.Detail != "title: "+want {
			t.Errorf("%s: %s", title, got.Detail)
		}
	}
	fits := `{"repo":"d","title":"` + strings.Repeat("ä", 150) + `"}`
	decode[api.Task](t, s.ask(t, http.MethodPost, "/tasks", fits), http.StatusCreated)
}

// What PostgreSQL would refuse as no text is the client's mistake and no failure of the server.
func TestBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, bad := range []string{"%ff", "a%00", "%c3"} {
		for _, list := range []string{"/tasks?repo=", "/jobs?task="} {
			problem := s.ask(t, http.MethodGet, list+bad, "").problem(t, http.StatusBadRequest, "bad_parameter")
			if problem.Errors == nil || !strings.HasSuffix(list, "?"+(*problem.Errors)[0].Field+"=") {
				t.Errorf("%s%s: %s", list, bad, problem.Detail)
			}
		}
		path := "/tasks/" + bad
		s.ask(t, http.MethodGet, path, "").problem(t, http.StatusNotFound, "not_found")
		s.ask(t, http.MethodGet, path+"/events", "").problem(t, http.StatusNotFound, "not_found")
		s.tell(t, http.MethodPost, path+"/cancel", "").problem(t, http.StatusNotFound, "not_found")
		s.tell(t, http.MethodPost, path+"/retry", `{}`).problem(t, http.StatusNotFound, "not_found")
	}
	if logged := s.logs.String(); strings.Contains(logged, `"level":"ERROR"`) {
		t.Errorf("the log has an error: %s", logged)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	tooLong := `{"repo":"d","title":"x","body":"` + strings.Repeat("x", 1<<20) + `"}`
	s.ask(t, http.MethodPost, "/tasks", tooLong).problem(t, http.StatusRequestEntityTooLarge, "body_too_large")
	chunked := request(t, http.MethodPost, "http://"+s.server.Addr()+"/tasks", tooLong)
	chunked.ContentLength = -1
	response, err := s.tcp.Do(chunked)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("chunked: got %d", response.StatusCode)
	}
	fits := `{"repo":"d","title":"x","body":"` + strings.Repeat("x", 256<<10) + `"}`
	decode[api.Task](t, s.ask(t, http.MethodPost, "/tasks", fits), http.StatusCreated)
	s.ask(t, http.MethodPost, "/tasks", `{"repo":"d","title":"x"}`, "Content-Type", "text/plain").
		problem(t, http.StatusUnsupportedMediaType, "unsupported_media_type")
}

func TestListTasksByPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range int64(7) {
		state := api.TaskActive
		if i%2 == 1 {
			state = api.TaskDone
		}
		s.AddTask(api.Task{ID: i + 1, Key: fmt.Sprintf("demo-%d", i+1), Repo: "demo", State: state})
	}
	for query, want := range map[string]string{
		"limit=3":                        "7 6 5|4 3 2|1",
		"limit=7":                        "7 6 5 4 3 2 1",
		"":                               "7 6 5 4 3 2 1",
		"state=done&limit=2":             "6 4|2",
		"state=done&state=active&limit=": "",
		"repo=other":                     "",
	} {
		var pages []string
		cursor := ""
		for {
			got := s.ask(t, http.MethodGet, "/tasks?"+query+"&cursor="+cursor, "")
			if query == "state=done&state=active&limit=" {
				got.problem(t, http.StatusBadRequest, "bad_parameter")
				break
			}
			list := decode[api.TaskList](t, got, http.StatusOK)
			var ids []string
			for _, task := range list.Items {
				ids = append(ids, strconv.FormatInt(task.ID, 10))
			}
			pages = append(pages, strings.Join(ids, " "))
			if list.NextCursor == nil {
				break
			}
			cursor = *list.NextCursor
		}
		if got := strings.Join(pages, "|"); got != want {
			t.Errorf("%s: pages %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=201", "limit=x", "cursor=!", "cursor=AAAA", "state=lost"} {
		problem := s.ask(t, http.MethodGet, "/tasks?"+query, "").problem(t, http.StatusBadRequest, "bad_parameter")
		if name, _, _ := strings.Cut(query, "="); problem.Errors == nil || (*problem.Errors)[0].Field != name {
			t.Errorf("%s: %s", query, problem.Detail)
		}
	}
}

func TestRetryTask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddTask(api.Task{ID: 1, Key: "demo-1", Repo: "demo", State: api.TaskBlocked})
	again := decode[api.Task](t, s.tell(t, http.MethodPost, "/tasks/demo-1/retry", `{"note":"use the helper"}`), http.StatusOK)
	if again.State != api.TaskActive || *again.Reason != "use the helper" {
		t.Errorf("got %+v", again)
	}
	long := `{"note":"` + strings.Repeat("x", 65537) + `"}`
	s.tell(t, http.MethodPost, "/tasks/demo-1/retry", long).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.tell(t, http.MethodPost, "/tasks/demo-9/retry", `{}`).problem(t, http.StatusNotFound, "not_found")
}

func TestTaskAndItsEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddTask(api.Task{ID: 1, Key: "acme/demo#65", Repo: "acme/demo", State: api.TaskActive},
		api.TaskEvent{ID: 3, Kind: "created"}, api.TaskEvent{ID: 5, Kind: "advanced", Data: json.RawMessage(`{"to":"deploy"}`)})
	path := "/tasks/acme%2Fdemo%2365"
	detail := decode[api.TaskDetail](t, s.ask(t, http.MethodGet, path, ""), http.StatusOK)
	if detail.Task.Key != "acme/demo#65" || len(detail.Events) != 2 || string(detail.Events[0].Data) != "{}" || detail.Runs == nil {
		t.Errorf("got %+v", detail)
	}
	first := decode[api.TaskEventList](t, s.ask(t, http.MethodGet, path+"/events?limit=1", ""), http.StatusOK)
	second := decode[api.TaskEventList](t, s.ask(t, http.MethodGet, path+"/events?cursor="+*first.NextCursor, ""), http.StatusOK)
	if len(second.Items) != 1 || second.Items[0].ID != 5 || second.NextCursor != nil || second.LastCursor == nil {
		t.Fatalf("got %+v", second)
	}
	later := decode[api.TaskEventList](t, s.ask(t, http.MethodGet, path+"/events?cursor="+*second.LastCursor, ""), http.StatusOK)
	if len(later.Items) != 0 || later.LastCursor == nil || *later.LastCursor != *second.LastCursor {
		t.Errorf("got %+v", later)
	}
	cancelled := decode[api.Task](t, s.tell(t, http.MethodPost, path+"/cancel", ""), http.StatusOK)
	if cancelled.State != api.TaskCancelled || *cancelled.ReasonCode != "cli" {
		t.Errorf("got %+v", cancelled)
	}
	s.tell(t, http.MethodPost, path+"/cancel", "").problem(t, http.StatusConflict, "task_ended")
	s.tell(t, http.MethodPost, path+"/retry", `{}`).problem(t, http.StatusConflict, "task_not_blocked")
	s.tell(t, http.MethodPost, path+"/retry", `{"nte":"x"}`).problem(t, http.StatusUnprocessableEntity, "unknown_field")
	for _, path := range []string{"/tasks/demo-9", "/tasks/demo-9/events", "/tasks/" + strings.Repeat("x", 300), "/tasks/a%00b"} {
		s.ask(t, http.MethodGet, path, "").problem(t, http.StatusNotFound, "not_found")
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddTask(api.Task{ID: 1, Key: "demo-1", State: api.TaskBlocked, ReasonCode: new("needs_input")})
	s.AddTask(api.Task{ID: 2, Key: "demo-2", State: api.TaskBlocked, ReasonCode: new("crashed")})
	const path = "/tasks/demo-1/answer"
	for body, code := range map[string]string{
		`{}`: "invalid", `{"answer":" \n"}`: "invalid", `{"answer":"` + strings.Repeat("x", 64<<10+1) + `"}`: "invalid",
		`{"answer":"8080","note":"x"}`: "unknown_field",
	} {
		s.tell(t, http.MethodPost, path, body).problem(t, http.StatusUnprocessableEntity, code)
	}
	if answered := decode[api.Task](t, s.tell(t, http.MethodPost, path, `{"answer":"8080"}`), http.StatusOK); answered.State != api.TaskActive || *answered.Reason != "8080" {
		t.Errorf("got %+v", answered)
	}
	s.tell(t, http.MethodPost, path, `{"answer":"8080"}`).problem(t, http.StatusConflict, "task_not_asking")
	s.tell(t, http.MethodPost, "/tasks/demo-2/answer", `{"answer":"8080"}`).problem(t, http.StatusConflict, "task_not_asking")
	s.tell(t, http.MethodPost, "/tasks/demo-9/answer", `{"answer":"8080"}`).problem(t, http.StatusNotFound, "not_found")
}

func TestRevert(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddTask(api.Task{ID: 1, Key: "demo-1", Repo: "demo", Title: "Do it", State: api.TaskDone})
	s.AddTask(api.Task{ID: 2, Key: "demo-2", Repo: "demo", State: api.TaskActive})
	got := s.tell(t, http.MethodPost, "/tasks/demo-1/revert", "")
	if made := decode[api.Task](t, got, http.StatusCreated); made.Title != "Revert demo-1: Do it" || got.Header.Get("Location") != "/tasks/demo-3" {
		t.Errorf("got %+v at %s", made, got.Header.Get("Location"))
	}
	s.tell(t, http.MethodPost, "/tasks/demo-2/revert", "").problem(t, http.StatusConflict, "task_not_landed")
	s.tell(t, http.MethodPost, "/tasks/demo-9/revert", "").problem(t, http.StatusNotFound, "not_found")
}

func TestJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddJob(api.Job{ID: 1, Kind: "stage", State: api.JobRunning, Task: new("demo-1")})
	s.AddJob(api.Job{ID: 2, Kind: "merge", State: api.JobQueued})
	list := decode[api.JobList](t, s.ask(t, http.MethodGet, "/jobs?state=running&task=demo-1", ""), http.StatusOK)
	if len(list.Items) != 1 || list.Items[0].ID != 1 || string(list.Items[0].Args) != "{}" {
		t.Errorf("got %+v", list)
	}
	if page := decode[api.JobList](t, s.ask(t, http.MethodGet, "/jobs?limit=1", ""), http.StatusOK); page.NextCursor == nil {
		t.Errorf("got %+v", page)
	}
	if job := decode[api.Job](t, s.ask(t, http.MethodGet, "/jobs/1", ""), http.StatusOK); job.Kind != "stage" {
		t.Errorf("got %+v", job)
	}
	if job := decode[api.Job](t, s.ask(t, http.MethodPost, "/jobs/2/cancel", ""), http.StatusOK); job.State != api.JobCancelled {
		t.Errorf("got %+v", job)
	}
	s.ask(t, http.MethodPost, "/jobs/2/cancel", "").problem(t, http.StatusConflict, "job_ended")
	for _, path := range []string{"/jobs/9", "/jobs/0", "/jobs/-1"} {
		s.ask(t, http.MethodGet, path, "").problem(t, http.StatusNotFound, "not_found")
	}
	for _, path := range []string{"/jobs/x", "/jobs/99999999999999999999", "/jobs?state=lost"} {
		s.ask(t, http.MethodGet, path, "").problem(t, http.StatusBadRequest, "bad_parameter")
	}
}

func FuzzCreateTask(f *testing.F) {
	for _, seed := range []string{
		`{"repo":"demo","title":"x","priority":3}`, `{"title":"x","adhoc":{"path":"/a","no_test":true,"timeout_s":5}}`, `{`, `[1]`,
		`{"title":"\ud800"}`, "{\"title\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		task, err := httpapi.DecodeNewTask(raw)
		if err != nil {
			return
		}
		for _, text := range []string{task.Repo, task.Title, task.Body, task.Base} {
			if strings.ContainsRune(text, 0) {
				t.Errorf("a NUL got through: %q", text)
			}
		}
		if task.Title == "" || len(task.Title) > 300 || task.Priority < -100 || task.Priority > 100 ||
			task.Repo == "" && task.Adhoc == nil || strings.HasPrefix(task.Base, "-") {
			t.Errorf("got through: %+v", task)
		}
		if a := task.Adhoc; a != nil && (!strings.HasPrefix(a.Path, "/") || (a.TestCommand == "") != a.NoTest || a.Timeout < 0) {
			t.Errorf("got through: %+v", a)
		}
	})
}
