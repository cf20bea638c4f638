package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"orch/internal/httpapi"
)

func TestTokenIsAskedOverTCP(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		public bool
		method string
		path   string
		auth   string
		want   int
	}{
		"no token":                   {path: "/tasks", want: 401},
		"wrong token":                {path: "/tasks", auth: "Bearer wrong", want: 401},
		"a prefix of the token":      {path: "/tasks", auth: "Bearer secre", want: 401},
		"empty token":                {path: "/tasks", auth: "Bearer ", want: 401},
		"another scheme":             {path: "/tasks", auth: "Basic secret", want: 401},
		"right token":                {path: "/tasks", auth: "Bearer secret", want: 200},
		"scheme in small letters":    {path: "/tasks", auth: "bearer secret", want: 200},
		"unknown path":               {path: "/nothing", want: 401},
		"health":                     {path: "/healthz", want: 200},
		"readiness":                  {path: "/readyz", want: 200},
		"queue":                      {path: "/queue", want: 401},
		"public queue":               {public: true, path: "/queue", want: 200},
		"metrics":                    {path: "/metrics", want: 401},
		"public metrics":             {public: true, path: "/metrics", want: 404},
		"public queue, other method": {public: true, method: http.MethodPost, path: "/queue", want: 401},
		"public queue, tasks":        {public: true, path: "/tasks", want: 401},
		"public queue, trick":        {public: true, path: "/queue/../tasks", want: 401},
		"health, trick":              {path: "/healthz/../tasks", want: 401},
		"health, escaped":            {path: "/%68ealthz", want: 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *httpapi.Config) { c.Token, c.QueuePublic = "secret", test.public })
			method := test.method
			if method == "" {
				method = http.MethodGet
			}
			got := s.ask(t, method, test.path, "", "Authorization", test.auth)
			if got.StatusCode != test.want {
				t.Fatalf("got %d %s, want %d", got.StatusCode, got.body, test.want)
			}
			if test.want == http.StatusUnauthorized {
				got.problem(t, http.StatusUnauthorized, "unauthorized")
				if got.Header.Get("WWW-Authenticate") == "" {
					t.Error("no WWW-Authenticate")
				}
			}
			if s.tell(t, http.MethodGet, "/tasks", "").StatusCode != http.StatusOK {
				t.Error("the socket asks for a token")
			}
			if strings.Contains(s.logs.String(), "secret") {
				t.Error("the token is in the log")
			}
		})
	}
}

// Without a token a page whose name was made to point at 127.0.0.1 is told apart by the name it sends.
func TestHostIsCheckedWithoutToken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8047": 200, "LOCALHOST": 200, "127.0.0.1": 200, "127.0.0.1:1": 200, "[::1]": 200, "[::1]:80": 200,
		"evil.example": 403, "evil.example:8047": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403,
	} {
		got := s.ask(t, http.MethodGet, "/tasks", "", "Host", host)
		if got.StatusCode != want {
			t.Errorf("%s: got %d, want %d", host, got.StatusCode, want)
		}
		if want == http.StatusForbidden {
			got.problem(t, want, "host_not_allowed")
		}
	}
	if got := s.ask(t, http.MethodGet, "/healthz", "", "Host", "probe.example"); got.StatusCode != http.StatusOK {
		t.Errorf("health: got %d", got.StatusCode)
	}
	withToken := serve(t, func(c *httpapi.Config) { c.Token = "secret" })
	if got := withToken.ask(t, http.MethodGet, "/tasks", "", "Host", "orch.example", "Authorization", "Bearer secret"); got.StatusCode != http.StatusOK {
		t.Errorf("with a token: got %d", got.StatusCode)
	}
}

func TestBrowsersMayNotSendFromOtherSites(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, test := range map[string]struct {
		headers []string
		want    int
	}{
		"no browser":  {nil, 201},
		"same origin": {[]string{"Sec-Fetch-Site", "same-origin"}, 201},
		"cross site":  {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"same site":   {[]string{"Sec-Fetch-Site", "same-site"}, 403},
		"old browser": {[]string{"Origin", "https://evil.example"}, 403},
		"null origin": {[]string{"Origin", "null"}, 403},
	} {
		got := s.ask(t, http.MethodPost, "/tasks", `{"repo":"demo","title":"x"}`, test.headers...)
		if got.StatusCode != test.want {
			t.Errorf("%s: got %d %s, want %d", name, got.StatusCode, got.body, test.want)
		}
		if test.want == http.StatusForbidden {
			got.problem(t, test.want, "cross_site_request")
		}
	}
	if n := len(s.Created()); n != 2 {
		t.Errorf("%d tasks were made, want 2", n)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{"/healthz", "/queue", "/nothing"} {
		h := s.ask(t, http.MethodGet, path, "", "Origin", "https://evil.example").Header
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Cache-Control") != "no-store" || h.Get("Access-Control-Allow-Origin") != "" || h.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if id := s.ask(t, http.MethodGet, "/healthz", "", "X-Request-Id", "abc-1").Header.Get("X-Request-Id"); id != "abc-1" {
		t.Errorf("the client's id became %q", id)
	}
	if id := s.ask(t, http.MethodGet, "/healthz", "", "X-Request-Id", "a b").Header.Get("X-Request-Id"); id == "a b" || id == "" {
		t.Errorf("a bad id became %q", id)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.ask(t, http.MethodGet, "/nothing", "").problem(t, http.StatusNotFound, "not_found")
	got := s.ask(t, http.MethodDelete, "/tasks", "")
	got.problem(t, http.StatusMethodNotAllowed, "method_not_allowed")
	if allow := got.Header.Get("Allow"); allow != "GET, POST" {
		t.Errorf("Allow: %q", allow)
	}
}
