package arch

// importRule says which packages of this module the packages below one folder may import. "x/..." means x and all below it.
type importRule struct {
	pkg   string
	allow []string
}

// importRules has one entry for every package of the module; the first that matches counts. A package without an entry is a
// violation, so that a new package starts with a decision about its place. Imports run one way: down this table.
var importRules = []importRule{
	{"", []string{"internal/cmd/..."}},
	{"internal/cmd/...", []string{"apis/...", "controllers/...", "internal/..."}},
	{"controllers/...", []string{
		"apis/...", "controllers/...",
		"internal/plan", "internal/status", "internal/build", "internal/observe", "internal/apply", "internal/validate",
		"internal/upgrade", "internal/backup", "internal/credential", "internal/upgradeable",
		"internal/agentapi", "internal/facts", "internal/postgres", "internal/naming",
	}},
	// The only reader and the only writer.
	{"internal/observe/...", []string{"apis/...", "internal/agentapi", "internal/backup", "internal/credential", "internal/facts", "internal/postgres", "internal/naming"}},
	{"internal/apply/...", []string{"apis/...", "internal/agentapi", "internal/facts", "internal/naming"}},
	// What Prometheus sees.
	{"internal/metrics", []string{"apis/..."}},
	// The operator's webhook, and its certificate.
	{"internal/admission", []string{"apis/...", "internal/observe", "internal/validate", "internal/facts", "internal/naming"}},
	{"internal/webhookcert", []string{"internal/credential", "internal/naming"}},
	// The web console: it knows the API, and nothing of how the operator works.
	{"internal/console", []string{"apis/...", "internal/console/view", "internal/credential", "internal/naming"}},
	{"internal/console/view", []string{"apis/...", "internal/naming"}},
	// What decides, and what describes what was decided.
	{"internal/validate", []string{"apis/...", "internal/backup", "internal/facts", "internal/postgres", "internal/naming"}},
	{"internal/upgradeable", []string{"apis/...", "internal/naming"}},
	{"internal/status", []string{"apis/...", "internal/plan", "internal/agentapi", "internal/backup", "internal/facts", "internal/postgres", "internal/naming"}},
	{"internal/build", []string{
		"apis/...", "internal/plan", "internal/credential",
		"internal/agentapi", "internal/backup", "internal/facts", "internal/postgres", "internal/naming",
	}},
	{"internal/plan", []string{"apis/...", "internal/agentapi", "internal/upgrade", "internal/backup", "internal/facts", "internal/postgres", "internal/naming"}},
	{"internal/upgrade", []string{"apis/...", "internal/agentapi", "internal/facts", "internal/postgres", "internal/naming"}},
	{"internal/backup", []string{"internal/postgres"}},
	// What runs beside PostgreSQL: it knows nothing of the operator.
	{"internal/agent/...", []string{
		"internal/agent/...", "internal/election",
		"internal/agentapi", "internal/backup", "internal/credential", "internal/facts", "internal/postgres", "internal/naming",
	}},
	{"internal/election", []string{"internal/facts", "internal/postgres", "internal/naming"}},
	// The ground, from here on.
	{"internal/agentapi", []string{"internal/backup", "internal/postgres", "internal/naming"}},
	{"internal/credential", []string{"internal/naming"}},
	{"internal/facts", []string{"apis/...", "internal/agentapi", "internal/backup", "internal/postgres", "internal/naming"}},
	{"internal/postgres", nil},
	{"internal/naming", nil},
	{"apis/...", []string{"apis/..."}},
	// What only tests use.
	{"internal/testing/...", []string{"apis/...", "controllers/...", "internal/..."}},
	{"test/...", []string{"apis/...", "internal/testing/...", "internal/agentapi", "internal/postgres", "internal/naming", "test/..."}},
	{"hack/...", []string{"apis/...", "internal/naming", "hack/..."}},
}

// testOnly are packages that only tests, and they themselves, may import.
var testOnly = []string{"internal/testing/...", "test/..."}

// libraryRule says which packages of this module may import a library.
type libraryRule struct {
	library string
	allow   []string
}

// libraryRules keep clients out of everything that has no business with them. The first that matches counts.
var libraryRules = []libraryRule{
	{"sigs.k8s.io/controller-runtime/pkg/conversion", []string{"apis/..."}}, // two interfaces
	{"sigs.k8s.io/controller-runtime/...", []string{
		"controllers/...", "internal/observe/...", "internal/apply/...", "internal/admission", "internal/webhookcert", "internal/cmd/...", "internal/console",
	}},
	{"github.com/jackc/pgx/...", []string{"internal/agent/...", "internal/testing/servers", "test/chaos/..."}},
	{"github.com/spf13/cobra/...", []string{"", "internal/cmd/..."}},
	{"k8s.io/client-go/kubernetes/...", []string{
		"controllers/...", "internal/observe/...", "internal/apply/...", "internal/agent/...", "internal/cmd/...",
	}},
}

// purePackages take time, random values and everything else from the world as arguments.
var purePackages = []string{
	"internal/naming", "internal/postgres", "internal/facts", "internal/plan", "internal/election",
	"internal/upgrade", "internal/backup", "internal/build", "internal/status", "internal/credential", "internal/validate",
	"internal/upgradeable", "internal/console/view",
}

// standardLibraryOnly are packages that import nothing but the standard library.
var standardLibraryOnly = []string{"internal/naming", "internal/postgres"}

// impureImports are what a pure package must not import: clients, contexts, the environment, the network, random sources,
// loggers, clocks.
var impureImports = []string{
	"context", "os/...", "os", "syscall", "golang.org/x/sys/...", "net/http/...", "net/rpc/...", "io/ioutil", "plugin",
	"math/rand/...", "crypto/rand", "github.com/google/uuid", "k8s.io/apimachinery/pkg/util/rand", "k8s.io/apimachinery/pkg/util/uuid",
	"log/...", "github.com/go-logr/...", "k8s.io/klog/...", "go.uber.org/zap/...",
	"k8s.io/utils/clock/...", "k8s.io/apimachinery/pkg/util/wait",
	"sigs.k8s.io/controller-runtime/...", "k8s.io/client-go/...", "github.com/jackc/pgx/...", "database/sql/...",
}

// pureExceptions are parts of the above that are plain data.
var pureExceptions = []string{"k8s.io/client-go/applyconfigurations/..."}

// impureCalls are what a pure package must not call, by the import path and the names in it.
var impureCalls = map[string][]string{
	"time":                                 {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
	"fmt":                                  {"Print", "Printf", "Println"},
}

// pureNames are the only names that a pure package may use of a package that also reaches out to the world.
var pureNames = map[string][]string{
	"net": {"IP", "IPNet", "JoinHostPort", "ParseCIDR", "ParseIP", "SplitHostPort"},
}

// domain begins the names of our labels, annotations and finalizers.
const domain = "pgsteward.io/"

// domainPackages are the only ones that may write it.
var domainPackages = []string{"apis/...", "internal/naming"}
