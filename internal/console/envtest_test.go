package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apiserver.Main(m)
}

// bound is how long a test waits for what has to come.
const bound = 30 * time.Second

// site is a console that serves, with nothing but the rights that it has when it is installed.
type site struct {
	t       *testing.T
	kube    client.Client
	console *Console
	address string
	log     *logged
	// clock is moved by tests.
	clock *clock
}

type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// logged is everything that the console has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newSite starts a console; change may change its options.
func newSite(t *testing.T, change func(*Options)) *site {
	t.Helper()
	s := &site{t: t, kube: apiserver.Client(t), log: &logged{}, clock: &clock{}}
	options := Options{Log: zap.New(zap.WriteTo(s.log), zap.Level(zapcore.DebugLevel)), Now: s.clock.now}
	if change != nil {
		change(&options)
	}
	var err error
	s.console, err = New(s.ownAccess(), options)
	require.NoError(t, err)
	s.console.beat = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = "https://" + listener.Addr().String()
	var running sync.WaitGroup
	running.Go(func() { _ = s.console.Start(ctx) })
	running.Go(func() { _ = s.console.Serve(ctx, listener, Certificate{}) })
	t.Cleanup(func() { cancel(); running.Wait() })
	filled, stop := context.WithTimeout(ctx, bound)
	defer stop()
	require.True(t, s.console.Filled(filled), "the cache is not filled: are the rights of config/console too few?")
	return s
}

// ownAccess is that of the ServiceAccount in config/console.
func (s *site) ownAccess() *rest.Config {
	s.t.Helper()
	namespace := apiserver.Namespace(s.t, s.kube)
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "console", "role.yaml"))
	require.NoError(s.t, err)
	role := &rbacv1.ClusterRole{}
	require.NoError(s.t, yaml.UnmarshalStrict(text, role))
	if err := s.kube.Create(s.t.Context(), role); !apierrors.IsAlreadyExists(err) {
		require.NoError(s.t, err)
	}
	config := rest.AnonymousClientConfig(apiserver.Config(s.t))
	config.BearerToken = s.account(namespace, "pgsteward-console", time.Hour)
	require.NoError(s.t, s.kube.Create(s.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "console-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "pgsteward-console"}},
	}))
	return config
}

// account makes a ServiceAccount that may nothing, and a token of it.
func (s *site) account(namespace, name string, lasts time.Duration) string {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	require.NoError(s.t, s.kube.Create(s.t.Context(), account))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(lasts.Seconds()))}}
	require.NoError(s.t, s.kube.SubResource("token").Create(s.t.Context(), account, request))
	return request.Status.Token
}

// grant lets an account do that in a namespace; an empty one means everywhere.
func (s *site) grant(namespace, account, in, group, resource string, verbs ...string) {
	s.t.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}
	name := strings.Join([]string{namespace, account, resource}, "-")
	meta := metav1.ObjectMeta{Namespace: in, Name: name}
	if in == "" {
		require.NoError(s.t, s.kube.Create(s.t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}))
		require.NoError(s.t, s.kube.Create(s.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: subjects,
		}))
		return
	}
	require.NoError(s.t, s.kube.Create(s.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	require.NoError(s.t, s.kube.Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: subjects,
	}))
}

// viewer is an account that may see the clusters of its own namespace, and that token.
func (s *site) viewer(namespace, name string) string {
	s.t.Helper()
	token := s.account(namespace, name, time.Hour)
	s.grant(namespace, name, namespace, v1.Group, clusters, "get", "list")
	return token
}

// cluster makes one with a status.
func (s *site) cluster(namespace, name string, change func(*v1.PostgresCluster)) *v1.PostgresCluster {
	s.t.Helper()
	c := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PostgresClusterSpec{Version: "16"}}
	status := full("text").Status
	status.Phase, status.Upgrade = v1.PhaseRunning, nil
	status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonReady, LastTransitionTime: *before(0)}}
	status.CurrentPrimary = name + "-1"
	for n := range status.Instances {
		status.Instances[n].Name = strings.Replace(status.Instances[n].Name, "prod-db", name, 1)
	}
	c.Status = status
	if change != nil {
		change(c)
	}
	status = c.Status
	require.NoError(s.t, s.kube.Create(s.t.Context(), c))
	c.Status = status
	require.NoError(s.t, s.kube.Status().Update(s.t.Context(), c))
	return c
}

// browser keeps cookies, as a user's does.
type browser struct {
	t    *testing.T
	site *site
	http *http.Client
}

func (s *site) browser() *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it vouches for itself
		ForceAttemptHTTP2: true,
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &browser{t: s.t, site: s, http: &http.Client{Jar: jar, Transport: transport, Timeout: bound}}
}

// arrived is a page as it arrived.
type arrived struct {
	code   int
	text   string
	path   string
	header http.Header
}

func (b *browser) do(method, path string, form url.Values, headers ...string) arrived {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.site.address+path, body)
	require.NoError(b.t, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for n := 0; n < len(headers); n += 2 {
		request.Header.Set(headers[n], headers[n+1])
	}
	response, err := b.http.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return arrived{code: response.StatusCode, text: string(text), path: response.Request.URL.RequestURI(), header: response.Header}
}

func (b *browser) get(path string, headers ...string) arrived {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, headers...)
}

var formValue = regexp.MustCompile(`name="form" value="([^"]+)"`)

// form is the value that forms of a page carry.
func (a arrived) form(t *testing.T) string {
	t.Helper()
	match := formValue.FindStringSubmatch(a.text)
	require.NotNil(t, match, "no form in %s", a.text)
	return match[1]
}

// login is what a person does.
func (b *browser) login(token string) arrived {
	b.t.Helper()
	page := b.get("/login")
	return b.do(http.MethodPost, "/login", url.Values{"token": {token}, "form": {page.form(b.t)}, "next": {"/"}})
}

// loggedIn is a browser of somebody with that token.
func (s *site) loggedIn(token string) *browser {
	s.t.Helper()
	b := s.browser()
	after := b.login(token)
	require.Equal(s.t, http.StatusOK, after.code, after.text)
	require.Equal(s.t, "/", after.path)
	return b
}

// eventually is the page once it has that text: informers and the API server's own authorizer hear of things a moment later, and what was refused
// meanwhile is remembered for a few seconds.
func (b *browser) eventually(path, text string) arrived {
	b.t.Helper()
	var last arrived
	require.Eventually(b.t, func() bool {
		b.site.clock.advance(time.Second)
		last = b.get(path)
		return strings.Contains(last.text, text)
	}, bound, 50*time.Millisecond, "%s never has %q", path, text)
	return last
}
