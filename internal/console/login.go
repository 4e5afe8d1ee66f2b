package console

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// loginsAtOnce and loginEvery limit how often one address may try to log in.
	loginsAtOnce = 10
	loginEvery   = 3 * time.Second
	// addressesKept bounds how many addresses are remembered for that.
	addressesKept = 10000
)

// limits counts logins by address.
type limits struct {
	now func() time.Time

	mu        sync.Mutex
	addresses map[string]*rate.Limiter
}

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, addresses: map[string]*rate.Limiter{}}
}

// allow says whether that address may try now.
func (l *limits) allow(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.addresses[address]
	if limiter == nil {
		if len(l.addresses) >= addressesKept {
			clear(l.addresses)
		}
		limiter = rate.NewLimiter(rate.Every(loginEvery), loginsAtOnce)
		l.addresses[address] = limiter
	}
	return limiter.AllowN(l.now(), 1)
}

// addressOf is who is at the other end of the connection: behind a proxy that is the proxy, since what it says could be made up.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

type loginData struct {
	page
	Next, Problem string
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	if _, err := c.identify(r); err == nil {
		http.Redirect(w, r, localPath(r.URL.Query().Get("next")), http.StatusSeeOther)
		return
	}
	c.showLogin(w, http.StatusOK, r.URL.Query().Get("next"), "")
}

// showLogin shows the page with a form that belongs to a cookie of its own, since there is no session yet.
func (c *Console) showLogin(w http.ResponseWriter, code int, next, problem string) {
	nonce := random()
	setCookie(w, loginCookie, nonce, loginTime)
	c.pages.show(w, code, "login", loginData{page: page{Title: "Log in", Form: c.sealer.formValue("login " + nonce)}, Next: localPath(next), Problem: problem})
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	address := addressOf(r)
	if !c.limits.allow(address) {
		w.Header().Set("Retry-After", "5")
		c.showLogin(w, http.StatusTooManyRequests, "", "Too many attempts from this address. Wait a few seconds and try again.")
		return
	}
	token, next := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("next")
	cookie, err := r.Cookie(loginCookie)
	if err != nil || !c.sealer.isFormValue(r.PostFormValue("form"), "login "+cookie.Value) {
		c.showLogin(w, http.StatusForbidden, next, "This page was too old. Try again.")
		return
	}
	if len(token) > tokenBytes {
		c.showLogin(w, http.StatusBadRequest, next, "The token is too long for a cookie. Use that of a ServiceAccount, made by kubectl create token.")
		return
	}
	u, err := c.directory.who(r.Context(), token)
	if errors.Is(err, errToken) {
		c.log.Info("Refused a login", "address", address)
		c.showLogin(w, http.StatusUnauthorized, next, "Kubernetes does not accept this token: it is wrong, or has expired.")
		return
	}
	if err != nil {
		c.log.Error(err, "Could not check a login", "address", address)
		c.showLogin(w, http.StatusServiceUnavailable, next, "Kubernetes does not answer just now. Try again.")
		return
	}
	sealed, err := c.sealer.seal(session{ID: random(), Token: token, Expires: c.now().Add(c.options.SessionTime)})
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.log.Info("Logged in", "user", u.name, "address", address)
	setCookie(w, loginCookie, "", -1)
	setCookie(w, sessionCookie, sealed, c.options.SessionTime)
	http.Redirect(w, r, localPath(next), http.StatusSeeOther)
}

// logout ends the session for whoever has its cookie, as far as this replica can.
func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if s, err := c.session(r); err == nil {
		if !c.sealer.isFormValue(r.PostFormValue("form"), "session "+s.ID) {
			c.refused(w, r)
			return
		}
		c.ended.put(s.ID, struct{}{}, c.options.SessionTime)
	}
	setCookie(w, sessionCookie, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// session is that of the request's cookie.
func (c *Console) session(r *http.Request) (session, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return session{}, errNoSession
	}
	s, err := c.sealer.open(cookie.Value)
	if err != nil {
		return session{}, err
	}
	if _, ended := c.ended.get(s.ID); ended {
		return session{}, errNoSession
	}
	return s, nil
}

// identify finds out whose request it is: errNoSession or errToken if nobody's.
func (c *Console) identify(r *http.Request) (*user, error) {
	if c.options.TokenHeader != "" {
		token := strings.TrimPrefix(r.Header.Get(c.options.TokenHeader), "Bearer ")
		u, err := c.directory.who(r.Context(), token)
		if err != nil {
			return nil, err
		}
		u.form = "proxy " + u.name
		return u, nil
	}
	s, err := c.session(r)
	if err != nil {
		return nil, err
	}
	u, err := c.directory.who(r.Context(), s.Token)
	if err != nil {
		return nil, err
	}
	u.form = "session " + s.ID
	return u, nil
}

// forUsers lets only users through; others are sent to log in, and come back from there.
func (c *Console) forUsers(next func(http.ResponseWriter, *http.Request, *user)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := c.identify(r)
		switch {
		case err == nil:
			next(w, r, u)
		case !errors.Is(err, errToken) && !errors.Is(err, errNoSession):
			c.unavailable(w, r, err)
		case c.options.TokenHeader != "":
			c.pages.problem(w, http.StatusUnauthorized, "Not logged in", "The proxy in front of the console gave no token that Kubernetes accepts.")
		case strings.HasPrefix(r.URL.Path, "/live"):
			http.Error(w, "not logged in", http.StatusUnauthorized)
		default:
			if errors.Is(err, errToken) {
				setCookie(w, sessionCookie, "", -1)
			}
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		}
	})
}

// localPath is a path of this console, and the first page if it is anything else.
func localPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(path, "/") ||
		strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") || strings.HasPrefix(path, "/login") {
		return "/"
	}
	return path
}
