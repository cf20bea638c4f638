package stub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"orch/internal/testagent/stub"
)

// conversation is one request of each dialect: without a tool's result, and with one.
type conversation struct {
	name, path, begin, answered string
	called, ended               []string // what the stream of each has to hold
}

func conversations() []conversation {
	return []conversation{
		{
			"responses", "/v1/responses",
			`{"tools":[{"type":"function","name":"view_image"},{"type":"function","name":"exec_command"}],"input":[{"type":"message","role":"user"}]}`,
			`{"tools":[{"type":"function","name":"exec_command"}],"input":[{"type":"message","role":"user"},{"type":"function_call_output"}]}`,
			[]string{"event: response.created", `"name":"exec_command"`, `{\"cmd\":\"true\"}`, "event: response.completed", `"input_tokens":1000`},
			[]string{`"output_text"`, "done", "event: response.completed"},
		},
		{
			"chat", "/v1/chat/completions",
			`{"tools":[{"type":"function","function":{"name":"bash"}}],"messages":[{"role":"user","content":"x"}]}`,
			`{"tools":[{"type":"function","function":{"name":"bash"}}],"messages":[{"role":"user","content":"x"},{"role":"tool","content":"ok"},{"role":"user","content":"y"}]}`,
			[]string{`"name":"bash"`, `\"command\":\"true\"`, `"finish_reason":"tool_calls"`, `"prompt_tokens":1000`, "data: [DONE]"},
			[]string{`"content":"done"`, `"finish_reason":"stop"`, "data: [DONE]"},
		},
		{
			"messages", "/v1/messages",
			`{"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"x"}]}`,
			`{"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":[{"type":"tool_result"}]},{"role":"user","content":"y"}]}`,
			[]string{"event: message_start", `"name":"Bash"`, `{\"command\":\"true\"`, `"stop_reason":"tool_use"`, "event: message_stop"},
			[]string{`"text":"done"`, `"stop_reason":"end_turn"`, "event: message_stop"},
		},
		{
			"contents", "/v1beta/models/m:streamGenerateContent",
			`{"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}],"contents":[{"parts":[{"text":"x"}]}]}`,
			`{"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}],"contents":[{"parts":[{"functionResponse":{"name":"x"}}]}]}`,
			[]string{`"name":"run_shell_command"`, `"args":{"command":"true"}`, `"promptTokenCount":1000`},
			[]string{`"text":"done"`, `"finishReason":"STOP"`},
		},
	}
}

func serve(t *testing.T, script stub.Script) (*stub.Server, string) {
	t.Helper()
	s := stub.New(script)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return s, web.URL
}

func post(t *testing.T, url, body string) (status int, header http.Header, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer sk-1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(read)
}

func TestTheModelCallsTheShellOnceAndThenSpeaks(t *testing.T) {
	t.Parallel()
	for _, tt := range conversations() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, url := serve(t, stub.Script{Command: "true", Says: "done"})
			_, _, call := post(t, url+tt.path, tt.begin)
			_, _, end := post(t, url+tt.path, tt.answered)
			for _, part := range tt.called {
				if !strings.Contains(call, part) {
					t.Errorf("no %q in\n%s", part, call)
				}
			}
			for _, part := range tt.ended {
				if !strings.Contains(end, part) {
					t.Errorf("no %q in\n%s", part, end)
				}
			}
			for line := range strings.Lines(call + end) {
				if data, is := strings.CutPrefix(strings.TrimSpace(line), "data: {"); is && !json.Valid([]byte("{"+data)) {
					t.Errorf("no JSON: %s", line)
				}
			}
			asked := s.Requests()
			if len(asked) != 2 || asked[0].Answered || !asked[1].Answered || asked[0].Key != "sk-1" || asked[0].Path != tt.path ||
				!bytes.Equal(asked[0].Body, []byte(tt.begin)) {
				t.Errorf("%+v", asked)
			}
		})
	}
}

func TestARequestWithoutToolsIsJustAnswered(t *testing.T) {
	t.Parallel()
	_, url := serve(t, stub.Script{Command: "true", Says: "A title"})
	if _, _, answer := post(t, url+"/v1/chat/completions", `{"messages":[]}`); !strings.Contains(answer, "A title") {
		t.Error(answer)
	}
	if _, _, answer := post(t, url+"/v1/chat/completions", `{"tools":[{"name":"look"}]}`); !strings.Contains(answer, "no shell among look") {
		t.Error(answer)
	}
}

func TestRefusalsTellWhenTheyEnd(t *testing.T) {
	t.Parallel()
	_, url := serve(t, stub.Script{Says: "done", Refusal: &stub.Refusal{
		Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "{{seconds}}"}, For: time.Hour,
		Body: `{"until":{{epoch}},"at":"{{utc}}"}`,
	}})
	status, header, answer := post(t, url+"/v1/responses", "{}")
	var until struct {
		Until int64  `json:"until"`
		At    string `json:"at"`
	}
	if err := json.Unmarshal([]byte(answer), &until); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(until.Until, 0).UTC()
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "3600" || until.At != at.Format(time.DateTime) || time.Until(at) > time.Hour {
		t.Errorf("%d, %v: %s", status, header, answer)
	}
}

func TestRefusalsEnd(t *testing.T) {
	t.Parallel()
	_, url := serve(t, stub.Script{Says: "done", Refusal: &stub.Refusal{Status: http.StatusInternalServerError, For: 20 * time.Millisecond}})
	refused := 0
	for {
		status, _, _ := post(t, url+"/v1/responses", "{}")
		if status == http.StatusOK {
			break
		}
		refused++
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func TestAHangingServerTakesTheRequest(t *testing.T) {
	t.Parallel()
	s, url := serve(t, stub.Script{Hangs: true})
	ctx, stop := context.WithCancelCause(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/responses", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		over <- err
	}()
	for len(s.Requests()) == 0 {
		select {
		case err := <-over:
			t.Fatalf("it was answered: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	stop(nil)
	if err := <-over; err == nil {
		t.Error("it was answered")
	}
}

func TestOtherPathsAreNotThere(t *testing.T) {
	t.Parallel()
	s, url := serve(t, stub.Script{Says: "done"})
	if status, _, _ := post(t, url+"/v1/models", "{}"); status != http.StatusNotFound || len(s.Requests()) != 0 {
		t.Errorf("%d", status)
	}
}
