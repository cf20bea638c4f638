package front

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// Codes of what a Guard refuses.
const (
	CodeUnauthorized   = "unauthorized"
	CodeHostNotAllowed = "host_not_allowed"
	CodeCrossSite      = "cross_site_request"
)

// Refuse answers a request that isn't let in.
type Refuse func(w http.ResponseWriter, r *http.Request, status int, code, detail string)

// Guard decides which requests over TCP are let in. The socket has none: its mode is one.
type Guard struct {
	token       string
	queuePublic bool
	hosts       map[string]bool // names that a request without a token may ask for
	refuse      Refuse
}

// NewGuard makes a guard for the address that is listened on. An empty token lets in whoever names a local host.
func NewGuard(addr, token string, queuePublic bool, refuse Refuse) *Guard {
	hosts := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
		hosts[strings.ToLower(host)] = true
	}
	return &Guard{token: token, queuePublic: queuePublic, hosts: hosts, refuse: refuse}
}

// Wrap puts the guard before a handler.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.refuse(w, r, http.StatusForbidden, CodeCrossSite, "a browser may not send this from another site")
	}))
	inner := crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case g.open(r):
			inner.ServeHTTP(w, r)
		case g.token == "" && !g.local(r.Host):
			g.refuse(w, r, http.StatusForbidden, CodeHostNotAllowed,
				"without ORCH_API_TOKEN requests must be addressed to localhost or 127.0.0.1")
		case g.token != "" && !g.authorized(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="orch"`)
			g.refuse(w, r, http.StatusUnauthorized, CodeUnauthorized, "send the header Authorization: Bearer <ORCH_API_TOKEN>")
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

// open says whether everybody may ask this.
func (g *Guard) open(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz":
		return true
	case "/queue", "/metrics":
		return g.token != "" && g.queuePublic && r.Method == http.MethodGet
	}
	return false
}

func (g *Guard) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && same(strings.TrimSpace(token), g.token)
}

// local says whether a Host header names this machine. Its port doesn't matter: a page can't choose a Host freely.
func (g *Guard) local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return g.hosts[strings.ToLower(name)]
}

// same compares in constant time; hashing hides the length too.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Loopback says whether an address can be reached from this machine only.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
