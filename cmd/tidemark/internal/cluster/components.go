package cluster

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// podRange has the addresses of Pods: a /24 for each node. It is outside of Tidemark's default range of Services.
const podRange = "10.128.0.0/9"

// readyLine is the line that tidemark serve prints when it is ready.
type readyLine struct {
	URL string `json:"url"`
}

// port returns the port of the URL.
func (r readyLine) port() (int, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(u.Port())
}

// serverArgs returns the command line of Tidemark.
func (c *Cluster) serverArgs() []string {
	return append([]string{
		"serve",
		"--data-dir=" + c.path("data"),
		"--kubeconfig-out=" + c.Kubeconfig,
		"--secure-port=" + strconv.Itoa(c.kept.Port),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--enable-admission-plugins=ServiceAccount,NodeRestriction",
		"--enable-bootstrap-token-auth",
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--ready-fd=1",
		"--exit-with-parent",
	}, c.o.Flags[Tidemark]...)
}

// componentArgs are the flags that kube-controller-manager and kube-scheduler share. Neither listens: its Lease shows that
// it works.
func (c *Cluster) componentArgs(kubeconfig string) []string {
	path := c.path(kubeconfig)
	return []string{
		"--kubeconfig=" + path,
		"--authentication-kubeconfig=" + path,
		"--authorization-kubeconfig=" + path,
		"--bind-address=127.0.0.1",
		"--secure-port=0",
		"--leader-elect=true",
	}
}

// controllerManagerArgs returns the command line of kube-controller-manager. ca.pem has the certificate and the key.
func (c *Cluster) controllerManagerArgs() []string {
	authority := c.path("data/pki/ca.crt")
	args := append(c.componentArgs("controller-manager.conf"),
		"--client-ca-file="+authority,
		"--root-ca-file="+authority,
		"--cluster-signing-cert-file="+authority,
		"--cluster-signing-key-file="+c.path("data/pki/ca.pem"),
		"--service-account-private-key-file="+c.path("sa.key"),
		"--use-service-account-credentials=true",
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
		"--allocate-node-cidrs=true",
		"--cluster-cidr="+podRange,
	)
	return append(args, c.o.Flags[ControllerManager]...)
}

// schedulerArgs returns the command line of kube-scheduler.
func (c *Cluster) schedulerArgs() []string {
	return append(c.componentArgs("scheduler.conf"), c.o.Flags[Scheduler]...)
}

// kwokArgs returns the command line of kwok, which is the kubelet of all its nodes. kwok uses the first ClusterResourceUsage
// that matches a Pod, so the user's files come first. kwok refuses a kind that is both in a file and in --enable-crds, so a
// user who enables the kinds of metrics as resources gets no file of them.
func (c *Cluster) kwokArgs() []string {
	args := []string{
		"--kubeconfig=" + c.path("kwok.conf"),
		"--config=" + c.path("kwok.yaml"),
	}
	for _, file := range c.o.KwokConfigs {
		args = append(args, "--config="+file)
	}
	if !slices.ContainsFunc(c.o.Flags[Kwok], enablesMetrics) {
		args = append(args, "--config="+c.path("kwok-metrics.yaml"))
	}
	args = append(args,
		"--manage-nodes-with-annotation-selector="+nodeMark+"="+nodeMarked,
		"--node-ip=127.0.0.1",
		"--node-port="+strconv.Itoa(c.kept.KwokPort),
		fmt.Sprintf("--server-address=127.0.0.1:%d", c.kept.KwokPort),
		"--node-lease-duration-seconds=40",
	)
	return append(args, c.o.Flags[Kwok]...)
}

// enablesMetrics reports whether a flag of kwok makes it read the kinds of its metrics from the API.
func enablesMetrics(flag string) bool {
	return strings.HasPrefix(flag, "--enable-crds") && (strings.Contains(flag, "Metric") || strings.Contains(flag, "ClusterResourceUsage"))
}

// freePort returns a port that is free now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
