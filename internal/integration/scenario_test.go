package integration_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

var peer = flag.String("peer", "", "kubeconfig of a kube-apiserver whose responses the scenarios record")

// scenario plays the requests of a file below testdata, and compares the responses with those that
// kube-apiserver v1.36.3 gave. A request is a line, and its response the next one:
//
//	USER METHOD PATH [BODY]
//	= CODE [MESSAGE]
//
// The user "admin" may do everything; n1, n2, ... are nodes, and "unnamed" is one without a name. In a body, {uid PATH} is the UID of
// an object, and {csr NAME GROUP} a request for a certificate. UIDs in messages are compared as
// "UID". PATCH is a merge patch, APPLY a server-side apply. The method SHOW is a GET; its response has the values at the paths that follow. Other lines
// are comments.
//
// With -peer, the responses come from that server and are written to the file. At a line WAIT, that
// server gets time to see policies and definitions; here they are in effect with the next request.
func scenario(t *testing.T, file string, s *tidemark.Server) {
	t.Helper()
	path := "testdata/" + file
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config *rest.Config
	if *peer != "" {
		if config, err = clientcmd.BuildConfigFromFlags("", *peer); err != nil {
			t.Fatal(err)
		}
	} else {
		config = servertest.Start(t, s).RESTConfig()
	}
	p := player{t, config, servertest.Client(t, config)}
	var out strings.Builder
	var last string
	for n, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		want, response := strings.CutPrefix(line, "= ")
		switch {
		case response && *peer != "":
			continue
		case response:
			if last != want {
				t.Errorf("%s:%d: %s, want %s", path, n+1, last, want)
			}
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "WAIT" && *peer != "" {
			givePeer(7 * time.Second) // the schemas of new definitions take longest
		}
		if parts := strings.SplitN(line, " ", 4); len(parts) >= 3 && strings.HasPrefix(parts[2], "/") {
			last = p.play(append(parts, "")[:4])
			fmt.Fprintln(&out, "= "+last)
		}
	}
	if *peer != "" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// givePeer gives a kube-apiserver whose responses are recorded time to see a write.
func givePeer(d time.Duration) { time.Sleep(d) }

type player struct {
	*testing.T
	config *rest.Config
	client *http.Client
}

var variable = regexp.MustCompile(`\{(uid|csr) ([^ }]+) ?([^ }]*)\}`)
var isNode = regexp.MustCompile(`^(n[0-9]|unnamed)$`)
var uid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// play sends the request of a line, and returns its response.
func (p player) play(parts []string) string {
	user, method, path := parts[0], parts[1], parts[2]
	if method == "SHOW" {
		return p.show(user, path, strings.Fields(parts[3]))
	}
	body := variable.ReplaceAllStringFunc(parts[3], func(v string) string {
		m := variable.FindStringSubmatch(v)
		if m[1] == "csr" {
			return request(p.T, m[2], m[3])
		}
		_, b := p.send("admin", http.MethodGet, m[2], "")
		var o struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(b, &o); err != nil || o.Metadata.UID == "" {
			p.Fatalf("the UID of %s: %s", m[2], b)
		}
		return o.Metadata.UID
	})
	code, b := p.send(user, method, path, body)
	var s struct{ Kind, Message string }
	if json.Unmarshal(b, &s); s.Kind == "Status" && s.Message != "" {
		return fmt.Sprintf("%d %s", code, uid.ReplaceAllString(strings.ReplaceAll(s.Message, "\n", `\n`), "UID"))
	}
	return fmt.Sprint(code)
}

// show returns values of an object, as JSON.
func (p player) show(user, path string, fields []string) string {
	code, b := p.send(user, http.MethodGet, path, "")
	shown := fmt.Sprint(code)
	for _, f := range fields {
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			p.Fatal(err)
		}
		for _, name := range strings.Split(f, ".") {
			switch at := v.(type) {
			case map[string]any:
				v = at[name]
			case []any:
				i, _ := strconv.Atoi(name)
				v = at[i]
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			p.Fatal(err)
		}
		shown += " " + string(text)
	}
	return shown
}

func (p player) send(user, method, path, body string) (int, []byte) {
	media := "application/json"
	switch method {
	case http.MethodPatch:
		media = "application/merge-patch+json"
	case "APPLY":
		method, media = http.MethodPatch, "application/apply-patch+yaml"
	}
	r, err := http.NewRequestWithContext(p.Context(), method, p.config.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	if isNode.MatchString(user) {
		r.Header.Set("Impersonate-User", "system:node:"+strings.TrimPrefix(user, "unnamed"))
		r.Header.Add("Impersonate-Group", "system:nodes")
	} else if user != "admin" {
		r.Header.Set("Impersonate-User", user)
	}
	response, err := p.client.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	return response.StatusCode, b
}

// request returns a request for a certificate, as a CertificateSigningRequest has it.
func request(t *testing.T, name, group string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
	if group != "" {
		template.Subject.Organization = []string{group}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}
