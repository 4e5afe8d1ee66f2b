//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// store is an S3 server with TLS in the namespace.
type store struct{ namespace string }

const (
	storePort   = 9000
	storeBucket = "backups"
	// storeName is that of its Pod, Service and Secrets, storeAccess that of the Secret for clients.
	storeName   = "s3"
	storeAccess = "s3-access"
	storeKey    = "not-a-secret"
)

// startStore starts an S3 server with an empty bucket, and makes the Secret with which clusters reach it.
func startStore(t *testing.T, namespace string) store {
	t.Helper()
	if images["S3_IMAGE"] == "" {
		t.Skip("bin/images.env names no S3_IMAGE: run make e2e")
	}
	s := store{namespace}
	cert, key := selfSigned(t, storeName+"."+namespace+".svc")
	for _, secret := range []*corev1.Secret{
		{ObjectMeta: meta(namespace, storeName), Data: map[string][]byte{"tls.crt": cert, "tls.key": key}},
		{ObjectMeta: meta(namespace, storeAccess), Data: map[string][]byte{
			"access-key-id": []byte("pgsteward"), "secret-access-key": []byte(storeKey), "ca.crt": cert,
		}},
	} {
		require.NoError(t, kube.Create(t.Context(), secret))
	}
	require.NoError(t, kube.Create(t.Context(), &corev1.Service{
		ObjectMeta: meta(namespace, storeName),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": storeName}, Ports: []corev1.ServicePort{{Port: storePort, TargetPort: intstr.FromInt32(storePort)}},
		},
	}))
	require.NoError(t, kube.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(namespace, storeName),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}))
	s.start(t)
	return s
}

// start starts the server's Pod, whose volume may have been used before.
func (s store) start(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: meta(s.namespace, storeName),
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			AutomountServiceAccountToken:  new(bool),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), FSGroup: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: storeName, Image: images["S3_IMAGE"],
				Args: []string{
					"--port", ":9000", "--cert", "/tls/tls.crt", "--key", "/tls/tls.key", "posix", "--nometa", "/data",
				},
				Env:       []corev1.EnvVar{{Name: "ROOT_ACCESS_KEY", Value: "pgsteward"}, {Name: "ROOT_SECRET_KEY", Value: storeKey}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(storePort)},
				}, PeriodSeconds: 1},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{
					// the second makes the folder, which is the bucket
					{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/data/" + storeBucket, SubPath: storeBucket},
					{Name: "tls", MountPath: "/tls"},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: storeName}}},
				{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: storeName}}},
			},
		},
	}
	pod.Labels = map[string]string{"app": storeName}
	require.NoError(t, kube.Create(t.Context(), pod))
	eventually(t, boundReady, "the S3 server is ready", func(c *assert.CollectT) {
		require.NoError(c, kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		require.True(c, podReady(*pod))
	})
}

// stop takes the server away; what is in the bucket stays.
func (s store) stop(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: meta(s.namespace, storeName)}
	require.NoError(t, kube.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	eventually(t, boundGone, "the S3 server is gone", func(c *assert.CollectT) {
		require.Error(c, kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	})
}

// setKey changes the key in the Secret for clients.
func (s store) setKey(t *testing.T, text string) {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, kube.Get(t.Context(), key(s.namespace, storeAccess), secret))
	secret.Data["secret-access-key"] = []byte(text)
	require.NoError(t, kube.Update(t.Context(), secret))
}

// repository is the store as a repository.
func (s store) repository() v1.RepositorySpec {
	return v1.RepositorySpec{S3: &v1.S3Repository{
		Endpoint: v1.StoreURL("https://" + storeName + "." + s.namespace + ".svc:9000"), Bucket: storeBucket, Prefix: "e2e", CredentialsSecret: storeAccess,
	}}
}

// selfSigned is a certificate of that host which is its own authority.
func selfSigned(t *testing.T, host string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
