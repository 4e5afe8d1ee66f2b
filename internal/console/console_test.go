package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

// TestLogin: who has no token that the API server takes sees nothing; who has one is in until logging out.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	namespace := apiserver.Namespace(t, s.kube)
	s.cluster(namespace, "prod-db", nil)
	token := s.viewer(namespace, "viewer")

	b := s.browser()
	for _, path := range []string{"/", "/clusters/" + namespace + "/prod-db", "/clusters/" + namespace + "/prod-db/backups"} {
		page := b.get(path)
		assert.Equal(t, "/login?next="+url.QueryEscape(path), page.path)
		assert.NotContains(t, page.text, "prod-db-1")
	}
	assert.Equal(t, http.StatusUnauthorized, b.get("/live").code)
	for _, bad := range []string{"", "nonsense", token + "x", strings.Repeat("x", tokenBytes+1), "a b\r\nc"} {
		refused := b.login(bad)
		assert.GreaterOrEqual(t, refused.code, 400, bad)
		assert.Contains(t, refused.text, `role="alert"`, bad)
	}

	page := b.login(token)
	assert.Equal(t, "/", page.path)
	page = b.eventually("/clusters/"+namespace+"/prod-db", "prod-db-1")
	assert.Contains(t, page.text, "system:serviceaccount:"+namespace+":viewer")
	for _, cookie := range b.http.Jar.Cookies(mustParse(t, s.address)) {
		assert.NotContains(t, cookie.Value, token)
	}

	stolen := b.http.Jar.Cookies(mustParse(t, s.address))
	assert.Equal(t, http.StatusForbidden, b.do(http.MethodPost, "/logout", url.Values{"form": {"wrong"}}).code)
	assert.Equal(t, "/login", b.do(http.MethodPost, "/logout", url.Values{"form": {page.form(t)}}).path)
	assert.Contains(t, b.get("/").path, "/login")
	b.http.Jar.SetCookies(mustParse(t, s.address), stolen)
	assert.Contains(t, b.get("/").path, "/login", "a session that was logged out stays so")

	assert.NotContains(t, s.log.String(), token, "a token is in no log")
	assert.Contains(t, s.log.String(), "system:serviceaccount:"+namespace+":viewer")
}

func mustParse(t *testing.T, address string) *url.URL {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	return parsed
}

// TestCookies: scripts, other sites and plain HTTP do not get them.
func TestCookies(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	namespace := apiserver.Namespace(t, s.kube)
	b := s.browser()
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	after := b.login(s.viewer(namespace, "viewer"))
	require.Equal(t, http.StatusSeeOther, after.code)
	set := strings.Join(after.header.Values("Set-Cookie"), "\n")
	assert.Contains(t, set, sessionCookie)
	for _, line := range after.header.Values("Set-Cookie") {
		for _, attribute := range []string{"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} {
			assert.Contains(t, line, attribute)
		}
	}
	headers := b.get("/").header
	assert.Contains(t, headers.Get("Content-Security-Policy"), "default-src 'none'")
	assert.NotContains(t, headers.Get("Content-Security-Policy"), "unsafe")
	assert.Equal(t, "no-store", headers.Get("Cache-Control"))
	assert.Equal(t, "nosniff", headers.Get("X-Content-Type-Options"))
}

// TestLogin_rateLimit: guessing is slow.
func TestLogin_rateLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	b := s.browser()
	codes := map[int]int{}
	for range loginsAtOnce + 3 {
		codes[b.login("guess").code]++
	}
	assert.Positive(t, codes[http.StatusTooManyRequests])
	assert.Positive(t, codes[http.StatusUnauthorized])
}

// TestExpiry: a session ends after its time, and sooner if its account does.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *Options) { o.SessionTime = time.Hour })
	namespace := apiserver.Namespace(t, s.kube)
	first, second := s.loggedIn(s.viewer(namespace, "first")), s.loggedIn(s.viewer(namespace, "second"))

	// A token ends with its account, as it does when its time is over.
	require.NoError(t, s.kube.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second"}}))
	require.Eventually(t, func() bool {
		s.clock.advance(answerTime)
		return strings.HasPrefix(second.get("/").path, "/login")
	}, bound, time.Second/2)
	s.clock.advance(time.Hour)
	assert.Contains(t, first.get("/").path, "/login", "its time is over")
}

// TestVisibility: an account sees what kubectl get would show it, and not whether there is more.
func TestVisibility(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	mine, others := apiserver.Namespace(t, s.kube), apiserver.Namespace(t, s.kube)
	s.cluster(mine, "mine-db", func(c *v1.PostgresCluster) { c.Spec.Backup = &v1.BackupSpec{} })
	s.cluster(others, "secret-db", nil)
	require.NoError(t, s.kube.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: mine, Name: "e"},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1.GroupVersion.String(), Kind: "PostgresCluster", Namespace: mine, Name: "mine-db"},
		Reason:         "Happened", Message: "something happened", LastTimestamp: metav1.NewTime(s.clock.now()),
	}))

	b := s.loggedIn(s.viewer(mine, "viewer"))
	page := b.eventually("/", "mine-db")
	assert.NotContains(t, page.text, "secret-db")
	assert.NotContains(t, page.text, others)
	assert.Contains(t, page.text, "1 cluster.")
	hidden, missing := b.get("/clusters/"+others+"/secret-db"), b.get("/clusters/"+others+"/no-such-db")
	assert.Equal(t, http.StatusNotFound, hidden.code)
	assert.Equal(t, missing.text, hidden.text, "what one may not see looks as if it were not there")
	assert.NotContains(t, b.get("/?q=secret").text, "secret-db")
	page = b.get("/clusters/" + mine + "/mine-db")
	assert.Contains(t, page.text, "You may not list events")
	assert.NotContains(t, page.text, "something happened")
	assert.Contains(t, b.get("/clusters/"+mine+"/mine-db/backups").text, "You may not list PostgresBackups")

	admin := s.account(mine, "admin", time.Hour)
	s.grant(mine, "admin", "", v1.Group, clusters, "get", "list")
	s.grant(mine, "admin", mine, "", events, "list")
	a := s.loggedIn(admin)
	a.eventually("/?q=secret-db", others) // other tests make more than one page has
	a.eventually("/?q=mine-db", mine)
	a.eventually("/clusters/"+mine+"/mine-db", "something happened")

	nobody := s.loggedIn(s.account(mine, "nobody", time.Hour))
	page = nobody.get("/")
	assert.Contains(t, page.text, "No clusters that you may see")
	assert.NotContains(t, page.text, "mine-db")
}

// TestTokenHeader: behind a proxy that gives the token there is no login, and a token that is no good shows nothing.
func TestTokenHeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *Options) { o.TokenHeader = "Authorization" })
	namespace := apiserver.Namespace(t, s.kube)
	s.cluster(namespace, "prod-db", nil)
	token := s.viewer(namespace, "viewer")
	b := s.browser()
	require.Eventually(t, func() bool {
		return strings.Contains(b.get("/", "Authorization", "Bearer "+token).text, "prod-db")
	}, bound, 50*time.Millisecond)
	assert.Equal(t, http.StatusUnauthorized, b.get("/").code)
	assert.Equal(t, http.StatusUnauthorized, b.get("/", "Authorization", "Bearer nonsense").code)
	assert.Equal(t, http.StatusNotFound, b.get("/login").code)
}

// TestHostileRequests: what a browser would not send is refused.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	namespace := apiserver.Namespace(t, s.kube)
	b := s.loggedIn(s.viewer(namespace, "viewer"))
	for _, path := range []string{
		"/assets/../console.go", "/assets/..%2f..%2fgo.mod", "/assets/%2e%2e/templates/login.html", "/assets/", "/assets/nothing",
		"/clusters/%2e%2e/x", "/clusters/a%2fb/c", "/clusters/" + namespace + "/%00", "/../../etc/passwd", "/actions",
	} {
		page := b.get(path)
		assert.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, page.code, path)
		assert.NotContains(t, page.text, "package console", path)
	}
	plain := s.browser()
	plain.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // HTTP/1.1, whose client does not know the limit
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, plain.get("/", "X-Long", strings.Repeat("x", 2*headerBytes)).code)
	page := b.get("/")
	form := url.Values{"form": {page.form(t)}}
	assert.Equal(t, http.StatusForbidden, b.do(http.MethodPost, "/logout", form, "Sec-Fetch-Site", "cross-site").code)
	assert.Equal(t, http.StatusForbidden, b.do(http.MethodPost, "/logout", form, "Origin", "https://evil.example").code)
	assert.Equal(t, "/", b.get("/").path, "still logged in")
	long := url.Values{"token": {strings.Repeat("x", 2*bodyBytes)}}
	assert.GreaterOrEqual(t, b.do(http.MethodPost, "/login", long).code, 400)
}

// TestLive: a page hears of a change of what it shows, within seconds, and of nothing that its user may not see.
func TestLive(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	mine, others := apiserver.Namespace(t, s.kube), apiserver.Namespace(t, s.kube)
	c, hidden := s.cluster(mine, "mine-db", nil), s.cluster(others, "other-db", nil)
	b := s.loggedIn(s.viewer(mine, "viewer"))
	b.eventually("/", "mine-db-1")
	fleet, one := b.follow("/live"), b.follow("/live/"+mine+"/mine-db")
	fleet.settles()

	hidden.Status.Phase = v1.PhaseFailed
	require.NoError(t, s.kube.Status().Update(t.Context(), hidden))
	fleet.quiet(t)

	c.Status.CurrentPrimary = "mine-db-2"
	require.NoError(t, s.kube.Status().Update(t.Context(), c))
	fleet.hears(t, "changed")
	one.hears(t, "changed")
	assert.Contains(t, b.get("/clusters/"+mine+"/mine-db").text, "primary mine-db-2", "what is told of is to be seen at once")

	page := b.get("/")
	b.do(http.MethodPost, "/logout", url.Values{"form": {page.form(t)}})
	fleet.hears(t, "ended")
}

// followed are the events of a stream.
type followed struct{ events chan string }

func (b *browser) follow(path string) *followed {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.site.address+path, nil)
	require.NoError(b.t, err)
	following := *b.http
	following.Timeout = 0
	response, err := following.Do(request)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, response.StatusCode)
	require.Equal(b.t, "text/event-stream", response.Header.Get("Content-Type"))
	f := &followed{events: make(chan string, 100)}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				f.events <- event
			}
		}
	})
	b.t.Cleanup(func() { cancel(); reading.Wait() })
	f.hears(b.t, "begun")
	return f
}

func (f *followed) hears(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(bound)
	for {
		select {
		case event := <-f.events:
			if event == want {
				return
			}
		case <-timeout:
			require.Fail(t, "the stream does not say "+want)
		}
	}
}

// silence is for how long a stream must say nothing to be taken to have nothing to say: longer than it holds news back.
const silence = 2 * streamPause

// settles waits until what came before has been told.
func (f *followed) settles() {
	for {
		select {
		case <-f.events:
		case <-time.After(silence):
			return
		}
	}
}

// quiet: it says nothing new for longer than news take.
func (f *followed) quiet(t *testing.T) {
	t.Helper()
	select {
	case event := <-f.events:
		require.Fail(t, "it hears of what it has nothing to do with", event)
	case <-time.After(silence):
	}
}

// TestActions: whoever has the right acts, with that right; nobody else does, and nothing is done without a confirmation.
func TestActions(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *Options) { o.Actions = true })
	namespace := apiserver.Namespace(t, s.kube)
	c := s.cluster(namespace, "prod-db", func(c *v1.PostgresCluster) { c.Spec.Backup = &v1.BackupSpec{} })
	path := "/clusters/" + namespace + "/prod-db"

	viewer := s.loggedIn(s.viewer(namespace, "viewer"))
	page := viewer.eventually(path, "prod-db-1")
	assert.NotContains(t, page.text, "/actions/")
	assert.Equal(t, http.StatusForbidden, viewer.get(path+"/actions/switchover").code)
	forced := viewer.do(http.MethodPost, path+"/actions/switchover", url.Values{"form": {page.form(t)}, "choice": {"best"}})
	assert.Equal(t, http.StatusForbidden, forced.code)

	token := s.account(namespace, "admin", time.Hour)
	s.grant(namespace, "admin", namespace, v1.Group, clusters, "get", "list", "patch")
	s.grant(namespace, "admin", namespace, v1.Group, backups, "create", "list")
	admin := s.loggedIn(token)
	admin.eventually(path, path+"/actions/switchover")
	admin.eventually(path, path+"/actions/backup")
	confirm := admin.get(path + "/actions/switchover")
	assert.Contains(t, confirm.text, "Writes pause")
	form := confirm.form(t)
	for name, bad := range map[string]url.Values{
		"without the form's value":  {"choice": {"best"}},
		"of another session's form": {"choice": {"best"}, "form": {page.form(t)}},
		"of what is no choice":      {"choice": {"prod-db-9"}, "form": {form}},
	} {
		assert.GreaterOrEqual(t, admin.do(http.MethodPost, path+"/actions/switchover", bad).code, 400, name)
	}
	assert.Equal(t, http.StatusConflict, admin.get(path+"/actions/continue").code, "no upgrade waits")
	read := func() *v1.PostgresCluster {
		found := &v1.PostgresCluster{}
		require.NoError(t, s.kube.Get(t.Context(), client.ObjectKeyFromObject(c), found))
		return found
	}
	assert.Empty(t, read().Annotations, "nothing was done yet")

	after := admin.do(http.MethodPost, path+"/actions/switchover", url.Values{"choice": {"prod-db-2"}, "form": {form}})
	assert.Equal(t, path+"?done=switchover", after.path)
	assert.Contains(t, after.text, "The switchover was asked for")
	assert.Equal(t, "prod-db-2", read().Annotations[naming.AnnotationSwitchover])
	after = admin.do(http.MethodPost, path+"/actions/preflight", url.Values{"choice": {"17"}, "form": {form}})
	assert.Equal(t, path+"/upgrade?done=preflight", after.path)
	assert.Equal(t, "17", read().Annotations[naming.AnnotationUpgradePreflight])
	after = admin.do(http.MethodPost, path+"/actions/upgrade", url.Values{"choice": {"17"}, "form": {form}})
	assert.Equal(t, path+"/upgrade?done=upgrade", after.path)
	assert.Equal(t, "17", read().Spec.Version)
	after = admin.do(http.MethodPost, path+"/actions/backup", url.Values{"choice": {"full"}, "form": {form}})
	assert.Equal(t, path+"/backups?done=backup", after.path)
	var made v1.PostgresBackupList
	require.NoError(t, s.kube.List(t.Context(), &made, client.InNamespace(namespace)))
	require.Len(t, made.Items, 1)
	assert.Equal(t, v1.PostgresBackupSpec{Cluster: "prod-db", Type: v1.BackupFull}, made.Items[0].Spec)
	assert.Contains(t, s.log.String(), "Acted for a user")
}

// TestActions_off: without the option there are none, whoever asks.
func TestActions_off(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	namespace := apiserver.Namespace(t, s.kube)
	s.cluster(namespace, "prod-db", nil)
	token := s.account(namespace, "admin", time.Hour)
	s.grant(namespace, "admin", namespace, v1.Group, clusters, "*")
	admin := s.loggedIn(token)
	path := "/clusters/" + namespace + "/prod-db"
	page := admin.eventually(path, "prod-db-1")
	assert.NotContains(t, page.text, "/actions/")
	assert.Equal(t, http.StatusNotFound, admin.do(http.MethodPost, path+"/actions/switchover", url.Values{"form": {page.form(t)}, "choice": {"best"}}).code)
}

// TestFleet_500: so many clusters are listed, found and sorted in less than a second.
func TestFleet_500(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	namespace := apiserver.Namespace(t, s.kube)
	const many = 500
	var making sync.WaitGroup
	next := make(chan int)
	for range 8 {
		making.Go(func() {
			for n := range next {
				assert.NoError(t, s.kube.Create(t.Context(), &v1.PostgresCluster{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("db-%03d", n)}, Spec: v1.PostgresClusterSpec{Version: "17"},
				}))
			}
		})
	}
	for n := range many {
		next <- n
	}
	close(next)
	making.Wait()
	b := s.loggedIn(s.viewer(namespace, "viewer"))
	b.eventually("/", fmt.Sprintf("%d clusters.", many))
	began := time.Now()
	page := b.get("/?sort=-name")
	took := time.Since(began)
	t.Logf("%d clusters in %s, %d KiB", many, took, len(page.text)>>10)
	assert.Equal(t, many, strings.Count(page.text, `<th scope="row">`))
	assert.Less(t, strings.Index(page.text, "db-499"), strings.Index(page.text, "db-001"))
	assert.Contains(t, b.get("/?q=db-42").text, "10 of 500 clusters")
}
