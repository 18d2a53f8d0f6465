//go:build unix

package cluster_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/cluster"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// stateVariable names the directory of the fakes in their environment: diary is a pipe or a file with a line for each start
// and each end, crashes-NAME has the number of times that a component still ends at its start, args-NAME its last command
// line, and nodes the nodes that were created.
const stateVariable = "CLUSTER_TEST_STATE"

// TestMain runs this binary as the component whose name it has.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); name {
	case cluster.Tidemark, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok:
		if err := fake(name, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	case parent:
		os.Exit(runParent())
	}
	os.Exit(tier.Race(m))
}

// fake runs a component until it gets SIGTERM.
func fake(name string, args []string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	diary, err := os.OpenFile(filepath.Join(os.Getenv(stateVariable), "diary"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer diary.Close()
	if crash(name) {
		return fmt.Errorf("%s has nothing to do", name)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(stateVariable), "args-"+name), []byte(strings.Join(args, "\n")), 0o600); err != nil {
		return err
	}
	if name == cluster.Tidemark {
		err = serve(args)
	} else {
		err = work(name, args)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(diary, "%s started %d\n", name, os.Getpid())
	<-signals
	fmt.Fprintf(diary, "%s ended\n", name)
	return nil
}

// crash reports whether the component has to end at this start.
func crash(name string) bool {
	path := filepath.Join(os.Getenv(stateVariable), "crashes-"+name)
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n == 0 {
		return false
	}
	return os.WriteFile(path, []byte(strconv.Itoa(n-1)), 0o600) == nil
}

// flagOf returns the last value of a flag.
func flagOf(args []string, name string) (value string) {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}

// work takes the Lease of the component, with the credentials of its kubeconfig. kwok makes the nodes ready.
func work(name string, args []string) error {
	text, err := os.ReadFile(flagOf(args, "kubeconfig"))
	if err != nil {
		return err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(config.Users[0].User.Certificate, config.Users[0].User.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
	r, err := http.NewRequest(http.MethodPut, config.Clusters[0].Cluster.Server+leaseOf(name), bytes.NewReader(fmt.Appendf(nil, `{"spec":{"holderIdentity":"%d"}}`, os.Getpid())))
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

const (
	leases     = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
	nodeLeases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// leaseOf returns the path of the Lease of a component: that of a node for kwok.
func leaseOf(name string) string {
	if name == cluster.Kwok {
		return nodeLeases + "/node-0"
	}
	return leases + name
}

// users are the users that may take each Lease.
var users = map[string]string{
	leaseOf(cluster.ControllerManager): "system:kube-controller-manager",
	leaseOf(cluster.Scheduler):         "system:kube-scheduler",
	leaseOf(cluster.Kwok):              "tidemark:kwok",
}

// server is the API of the fake of Tidemark. Its objects are in memory; Leases are kept in a file, as a kill leaves them.
type server struct {
	mu     sync.Mutex
	file   string
	leases map[string]json.RawMessage // guarded by mu
	nodes  []json.RawMessage          // guarded by mu
}

// serve serves, and prints the line of --ready-fd.
func serve(args []string) error {
	dir := flagOf(args, "data-dir")
	authority, err := pki.Open(pki.Config{Dir: filepath.Join(dir, "pki")})
	if err != nil {
		return err
	}
	s := &server{file: filepath.Join(dir, "leases.json"), leases: map[string]json.RawMessage{}}
	if text, err := os.ReadFile(s.file); err == nil {
		if err := json.Unmarshal(text, &s.leases); err != nil {
			return err
		}
	}
	if text, err := os.ReadFile(filepath.Join(os.Getenv(stateVariable), "nodes")); err == nil {
		if err := json.Unmarshal(text, &s.nodes); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+flagOf(args, "secure-port"))
	if err != nil {
		return err
	}
	config := &tls.Config{GetCertificate: authority.GetCertificate, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.Pool()}
	go http.Serve(tls.NewListener(l, config), s)
	_, err = fmt.Printf("{\"url\":\"https://%s\"}\n", l.Addr())
	return err
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := r.TLS.PeerCertificates[0].Subject.CommonName
	body, _ := io.ReadAll(r.Body)
	name, isLease := r.URL.Path, users[r.URL.Path] != ""
	switch {
	case isLease && r.Method == http.MethodPut && user != users[name]:
		http.Error(w, `{"message":"the user is `+user+`"}`, http.StatusForbidden)
	case isLease && r.Method == http.MethodPut && s.leases[name] != nil:
		http.Error(w, `{"message":"the Lease is held"}`, http.StatusConflict)
	case isLease && r.Method == http.MethodPut:
		s.leases[name] = body
		text, _ := json.Marshal(s.leases)
		os.WriteFile(s.file, text, 0o600)
		w.Write(body)
	case isLease && s.leases[name] == nil:
		http.Error(w, `{"message":"not found"}`, http.StatusNotFound)
	case isLease && r.Method == http.MethodDelete:
		delete(s.leases, name)
	case isLease:
		w.Write(s.leases[name])
	case r.URL.Path == nodeLeases && s.leases[leaseOf(cluster.Kwok)] != nil:
		io.WriteString(w, `{"items":[{"metadata":{"name":"node-0"}}]}`)
	case r.URL.Path == nodeLeases:
		io.WriteString(w, `{}`)
	case r.URL.Path == "/api/v1/nodes" && r.Method == http.MethodPost:
		s.nodes = append(s.nodes, body)
		s.keepNodes()
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/node-0" && r.Header.Get("Content-Type") == "application/merge-patch+json":
		for i, text := range s.nodes {
			if bytes.Contains(text, []byte(`"node-0"`)) {
				s.nodes[i], _ = jsonpatch.MergePatch(text, body)
			}
		}
		s.keepNodes()
	case r.URL.Path == "/api/v1/nodes":
		s.listNodes(w)
	case strings.HasPrefix(r.URL.Path, "/apis/rbac.authorization.k8s.io/v1/clusterrole"):
		http.Error(w, `{"message":"it exists"}`, http.StatusConflict)
	default:
		http.Error(w, `{"message":"no such path"}`, http.StatusNotFound)
	}
}

// keepNodes writes the nodes to a file for the test. The caller holds mu.
func (s *server) keepNodes() {
	text, _ := json.Marshal(s.nodes)
	os.WriteFile(filepath.Join(os.Getenv(stateVariable), "nodes"), text, 0o600)
}

// listNodes lists the nodes, which are ready while kwok works.
func (s *server) listNodes(w http.ResponseWriter) {
	status := "False"
	if s.leases[leaseOf(cluster.Kwok)] != nil {
		status = "True"
	}
	items := make([]map[string]any, len(s.nodes))
	for i, text := range s.nodes {
		json.Unmarshal(text, &items[i])
		items[i]["status"] = map[string]any{"conditions": []map[string]string{{"type": "Ready", "status": status}}}
	}
	json.NewEncoder(w).Encode(map[string]any{"items": items})
}
