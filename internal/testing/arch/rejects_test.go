package arch

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

const testModule = "example.com/m"

// fake is a source file made up for a test.
func fake(t *testing.T, pkg, code string) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "fake.go", code, parser.SkipObjectResolution)
	require.NoError(t, err)
	return source{pkg: pkg, file: file, fset: fset}
}

// requireComplaint: there is exactly one complaint and it contains want; with an empty want, there is none.
func requireComplaint(t *testing.T, want string, complaints []string) {
	t.Helper()
	if want == "" {
		require.Empty(t, complaints)
		return
	}
	require.Len(t, complaints, 1)
	require.Contains(t, complaints[0], want)
}

func TestImportRulesReject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pkg, imports, want string }{
		"main may wire":                        {"", "example.com/m/internal/cmd", ""},
		"main does not reconcile":              {"", "example.com/m/controllers", "must not import"},
		"controllers decide by plan":           {"controllers", "example.com/m/internal/plan", ""},
		"controllers do not import the agent":  {"controllers", "example.com/m/internal/agent/lease", "must not import"},
		"controllers do not import wiring":     {"controllers", "example.com/m/internal/cmd", "must not import"},
		"plan does not build":                  {"internal/plan", "example.com/m/internal/build", "must not import"},
		"plan does not observe":                {"internal/plan", "example.com/m/internal/observe", "must not import"},
		"plan does not apply":                  {"internal/plan", "example.com/m/internal/apply", "must not import"},
		"upgrade does not call plan back":      {"internal/upgrade", "example.com/m/internal/plan", "must not import"},
		"build does not apply":                 {"internal/build", "example.com/m/internal/apply", "must not import"},
		"build does not read":                  {"internal/build", "example.com/m/internal/observe", "must not import"},
		"status reads the decision":            {"internal/status", "example.com/m/internal/plan", ""},
		"observe does not write":               {"internal/observe", "example.com/m/internal/apply", "must not import"},
		"apply does not read":                  {"internal/apply", "example.com/m/internal/observe", "must not import"},
		"agent parts know each other":          {"internal/agent/role", "example.com/m/internal/agent/lease", ""},
		"agent does not import controllers":    {"internal/agent/role", "example.com/m/controllers", "must not import"},
		"agent does not build":                 {"internal/agent/role", "example.com/m/internal/build", "must not import"},
		"agent does not observe":               {"internal/agent/role", "example.com/m/internal/observe", "must not import"},
		"agent does not apply":                 {"internal/agent/role", "example.com/m/internal/apply", "must not import"},
		"election does not import the agent":   {"internal/election", "example.com/m/internal/agent", "must not import"},
		"agentapi knows nothing above it":      {"internal/agentapi", "example.com/m/internal/agent", "must not import"},
		"facts know nothing above them":        {"internal/facts", "example.com/m/internal/plan", "must not import"},
		"naming knows nothing":                 {"internal/naming", "example.com/m/apis/v1", "must not import"},
		"postgres knows nothing":               {"internal/postgres", "example.com/m/internal/naming", "must not import"},
		"types know nothing":                   {"apis/v1", "example.com/m/internal/naming", "must not import"},
		"the program does not import tests":    {"internal/cmd", "example.com/m/internal/testing/cluster", "for tests only"},
		"a new package needs a rule":           {"internal/helper", "fmt", "has no import rule"},
		"the console does not plan":            {"internal/console", "example.com/m/internal/plan", "must not import"},
		"the console does not know agents":     {"internal/console", "example.com/m/internal/agentapi", "must not import"},
		"views have no client":                 {"internal/console/view", "sigs.k8s.io/controller-runtime/pkg/client", "must not import"},
		"plan has no client":                   {"internal/plan", "sigs.k8s.io/controller-runtime/pkg/client", "must not import"},
		"types know how to be converted":       {"apis/v1alpha1", "sigs.k8s.io/controller-runtime/pkg/conversion", ""},
		"types have no client":                 {"apis/v1alpha1", "sigs.k8s.io/controller-runtime/pkg/client", "must not import"},
		"validation has no client":             {"internal/validate", "example.com/m/internal/observe", "must not import"},
		"agent has no controller-runtime":      {"internal/agent/lease", "sigs.k8s.io/controller-runtime", "must not import"},
		"agent talks to the API server":        {"internal/agent/lease", "k8s.io/client-go/kubernetes", ""},
		"operator does not talk to PostgreSQL": {"internal/observe", "github.com/jackc/pgx/v5", "must not import"},
		"flags are for the wiring":             {"controllers", "github.com/spf13/cobra", "must not import"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fake(t, c.pkg, "package x\nimport _ \""+c.imports+"\"\n")
			requireComplaint(t, c.want, checkImports(testModule, s))
		})
	}
}

func TestPurityRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pkg, code, want string }{
		"time as an argument":  {"internal/plan", "import \"time\"\nfunc f(now time.Time) time.Time { return now.Add(time.Second) }", ""},
		"the clock":            {"internal/plan", "import \"time\"\nvar x = time.Now()", "must not use time.Now"},
		"the clock renamed":    {"internal/plan", "import clock \"time\"\nvar x = clock.Now()", "must not use time.Now"},
		"the clock as a value": {"internal/election", "import \"time\"\nvar now = time.Now", "must not use time.Now"},
		"the clock by a dot":   {"internal/plan", "import . \"time\"\nvar x = Now()", "by a name"},
		"since":                {"internal/upgrade", "import \"time\"\nfunc f(t time.Time) any { return time.Since(t) }", "time.Since"},
		"sleep":                {"internal/backup", "import \"time\"\nfunc f() { time.Sleep(1) }", "time.Sleep"},
		"timer":                {"internal/election", "import \"time\"\nvar x = time.NewTimer(1)", "time.NewTimer"},
		"Kubernetes' clock":    {"internal/status", "import metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\nvar x = metav1.Now()", "v1.Now"},
		"context":              {"internal/plan", "import \"context\"\nvar _ context.Context", "\"context\""},
		"environment":          {"internal/build", "import \"os\"\nvar x = os.Getenv(\"X\")", "\"os\""},
		"processes":            {"internal/build", "import \"os/exec\"\nvar x exec.Cmd", "\"os/exec\""},
		"pseudo-random":        {"internal/election", "import \"math/rand/v2\"\nvar x = rand.Int()", "math/rand/v2"},
		"random":               {"internal/build", "import \"crypto/rand\"\nvar x = rand.Reader", "crypto/rand"},
		"Kubernetes' random":   {"internal/build", "import \"k8s.io/apimachinery/pkg/util/rand\"\nvar x = rand.String(5)", "util/rand"},
		"slog":                 {"internal/status", "import \"log/slog\"\nvar x = slog.Default()", "log/slog"},
		"log":                  {"internal/status", "import \"log\"\nfunc f() { log.Fatal() }", "\"log\""},
		"logr":                 {"internal/plan", "import \"github.com/go-logr/logr\"\nvar x logr.Logger", "go-logr"},
		"client":               {"internal/plan", "import \"sigs.k8s.io/controller-runtime/pkg/client\"\nvar x client.Client", "controller-runtime"},
		"clientset":            {"internal/build", "import \"k8s.io/client-go/kubernetes\"\nvar x kubernetes.Interface", "client-go"},
		"apply configurations": {"internal/build", "import ac \"k8s.io/client-go/applyconfigurations/core/v1\"\nvar x = ac.Pod", ""},
		"network":              {"internal/postgres", "import \"net/http\"\nvar x http.Client", "net/http"},
		"dialling":             {"internal/build", "import \"net\"\nvar x = net.Dial", "net.Dial"},
		"joining is data":      {"internal/build", "import \"net\"\nvar x = net.JoinHostPort", ""},
		"randomness is given":  {"internal/credential", "import \"crypto/rand\"\nvar x = rand.Reader", "crypto/rand"},
		"addresses are data":   {"internal/postgres", "import \"net/netip\"\nvar x netip.Addr", ""},
		"library in postgres":  {"internal/postgres", "import \"github.com/blang/semver/v4\"\nvar x semver.Version", "standard library"},
		"goroutine":            {"internal/facts", "func f() { go f() }", "goroutines"},
		"channel":              {"internal/facts", "type x chan int", "channels"},
		"send":                 {"internal/facts", "func f(c any) { c <- 1 }", "channels"},
		"receive":              {"internal/facts", "func f(c any) any { return <-c }", "channels"},
		"select":               {"internal/facts", "func f() { select {} }", "channels"},
		"print":                {"internal/plan", "import \"fmt\"\nfunc f() { fmt.Println() }", "fmt.Println"},
		"built-in print":       {"internal/plan", "func f() { println() }", "println"},
		"not a pure package":   {"internal/agent", "import \"time\"\nvar x = time.Now()", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireComplaint(t, c.want, checkPurity(fake(t, c.pkg, "package x\n"+c.code)))
		})
	}
}

func TestLiteralsReject(t *testing.T) {
	t.Parallel()
	code := "package x\n// pgsteward.io/cluster\nconst x = \"pgsteward.io/cluster\""
	requireComplaint(t, "use a constant", checkLiterals(fake(t, "internal/build", code)))
	requireComplaint(t, "", checkLiterals(fake(t, "internal/naming", code)))
	requireComplaint(t, "", checkLiterals(fake(t, "internal/build", "package x\n// pgsteward.io/cluster\nconst x = \"pgsteward.io\"")))
}
