package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

const (
	// answerTime is for how long what the API server says about a token is taken to be so.
	answerTime = time.Minute
	// refusalTime is the same for what a user may not do.
	refusalTime = 10 * time.Second
	// askTime bounds one question to the API server.
	askTime = 10 * time.Second
	// anonymous is who has no token.
	anonymous = "system:anonymous"
)

// errToken: the API server does not know the token.
var errToken = errors.New("the token is not valid, or has expired")

// tokenForm is what tokens consist of (RFC 6750).
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// tokenHash stands for a token where it is remembered.
type tokenHash [sha256.Size]byte

// user is who asks, with the means to ask the API server in that one's name.
type user struct {
	name string
	hash tokenHash
	// form is what this user's forms are derived from.
	form string
	api  client.Client
}

// directory asks the API server who has a token.
type directory struct {
	config *rest.Config
	base   http.RoundTripper
	scheme *runtime.Scheme
	mapper apimeta.RESTMapper
	names  *memory[tokenHash, string]
}

// newDirectory takes from the console's own access where the API server is and how it is known, and nothing by which it knows the console.
func newDirectory(own *rest.Config, scheme *runtime.Scheme, now func() time.Time) (*directory, error) {
	config := rest.AnonymousClientConfig(own)
	config.QPS = -1 // each user has a client of its own: there is nothing to share out
	base, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("access to Kubernetes: %w", err)
	}
	return &directory{config: config, base: base, scheme: scheme, mapper: mapper(), names: newMemory[tokenHash, string](now)}, nil
}

// mapper knows the kinds that are sent in a user's name, so that none has to be discovered.
func mapper() apimeta.RESTMapper {
	m := apimeta.NewDefaultRESTMapper(nil)
	m.Add(v1.GroupVersion.WithKind("PostgresCluster"), apimeta.RESTScopeNamespace)
	m.Add(v1.GroupVersion.WithKind("PostgresBackup"), apimeta.RESTScopeNamespace)
	for _, kind := range []schema.GroupVersionKind{
		authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
	} {
		m.Add(kind, apimeta.RESTScopeRoot)
	}
	return m
}

// who is the user with that token. The error is errToken if the API server does not take it.
func (d *directory) who(ctx context.Context, token string) (*user, error) {
	if len(token) > tokenBytes*4 || !tokenForm.MatchString(token) {
		return nil, errToken
	}
	api, err := client.New(d.config, client.Options{
		HTTPClient: &http.Client{Transport: transport.NewBearerAuthRoundTripper(token, d.base), Timeout: askTime},
		Scheme:     d.scheme,
		Mapper:     d.mapper,
	})
	if err != nil {
		return nil, fmt.Errorf("access to Kubernetes: %w", err)
	}
	u := &user{hash: sha256.Sum256([]byte(token)), api: api}
	name, ok := d.names.get(u.hash)
	if !ok {
		if name, err = ask(ctx, api); err != nil {
			return nil, err
		}
		d.names.put(u.hash, name, answerTime)
	}
	u.name = name
	return u, nil
}

func ask(ctx context.Context, api client.Client) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := api.Create(ctx, review); err != nil {
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return "", errToken
		}
		return "", fmt.Errorf("asking whose token that is: %w", err)
	}
	name := review.Status.UserInfo.Username
	if name == "" || name == anonymous {
		return "", errToken
	}
	return name, nil
}
