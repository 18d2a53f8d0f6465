package tidemark_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// requestFor returns a CertificateSigningRequest r of ann, and its private key as PEM.
func requestFor(t *testing.T) (*certificatesv1.CertificateSigningRequest, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: []string{"dev"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// approved creates a request, approves it, and returns it when the controllers have settled.
func approved(t *testing.T, w *tidemark.World, r *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(t.Context(), r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	if _, err := requests.UpdateApproval(t.Context(), "r", made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made, err = requests.Get(t.Context(), "r", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	return made
}

// TestSignedRequest: the certificate of an approved request authenticates its user. A fork issues none: it would be valid
// in the server, too.
func TestSignedRequest(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	fork := mustFork(t, s.Root(), tidemark.ForkOptions{})
	r, key := requestFor(t)
	if made := approved(t, fork, r); len(made.Status.Certificate) > 0 || len(made.Status.Conditions) != 1 {
		t.Errorf("in a fork: %+v", made.Status)
	}
	made := approved(t, s.Root(), r)
	if len(made.Status.Certificate) == 0 {
		t.Fatalf("no certificate: %+v", made.Status)
	}
	config := servertest.Anonymous(s)
	config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = made.Status.Certificate, key
	if user := whoAmI(t, config); user.Username != "ann" || strings.Join(user.Groups, " ") != "dev system:authenticated" {
		t.Errorf("the user is %+v", user)
	}
}

func whoAmI(t *testing.T, c *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// TestSignedOnce: of several servers one issues the certificate, and another one that leads later leaves it.
func TestSignedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 2)
		time.Sleep(5 * time.Second)
		r, _ := requestFor(t)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		want(t, all[0], 201, "POST", csrs, string(text))
		want(t, all[1], 200, "PATCH", csrs+"/r/approval", `[{"op":"add","path":"/status/conditions","value":[{"type":"Approved","status":"True","reason":"Test"}]}]`)
		time.Sleep(5 * time.Second)
		read := func(s *tidemark.Server) (r certificatesv1.CertificateSigningRequest) {
			if err := json.Unmarshal([]byte(want(t, s, 200, "GET", csrs+"/r", "")), &r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		first := read(all[0])
		if len(first.Status.Certificate) == 0 {
			t.Fatalf("no certificate: %+v", first.Status)
		}
		for i, s := range all {
			if leads := leaders(t, all); len(leads) == 1 && leads[0] == s {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Second)
				if now := read(all[1-i]); now.ResourceVersion != first.ResourceVersion {
					t.Errorf("another leader wrote it: %+v", now.Status)
				}
				return
			}
		}
		t.Error("no server leads")
	})
}
