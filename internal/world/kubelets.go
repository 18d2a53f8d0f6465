package world

import (
	"fmt"
	"net"
	"os"
	"runtime/debug"

	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/serving"
)

// openConnections makes the connections to kubelets. The listeners are open by then: no connection leads to them.
func (p *process) openConnections() error {
	c := &p.Kubelets
	on := make([]net.Addr, 0, len(p.listeners))
	for _, l := range p.listeners {
		on = append(on, l.Addr())
	}
	kubelets, err := kubelet.New(kubelet.Config{
		ClientCertificate: c.ClientCertFile, ClientKey: c.ClientKeyFile, CertificateAuthority: c.CAFile, AddressTypes: c.AddressTypes,
		Timeout: c.Timeout, MaxConnections: maxDialled(), Own: kubelet.Listens(on...), Dial: p.DialNodes, Log: p.logOf(logCertificates),
	})
	if err != nil {
		return fmt.Errorf("kubelets: %w", err)
	}
	p.connections = connect.New(kubelets)
	p.collectors = append(p.collectors, p.connections.Collectors()...)
	return nil
}

// maxDialled returns how many connections the server opens to nodes and Pods, and as many to extension servers: a quarter of
// those of its clients. A client that has a stream uses one of each, and others need files, too.
func maxDialled() int {
	return max(1, serving.MaxConnections(processMemory(debug.SetMemoryLimit(-1), os.ReadFile))/4)
}

// closeConnections closes the connections to kubelets that no request uses.
func (p *process) closeConnections() {
	if p.connections != nil {
		p.connections.Kubelets().CloseIdleConnections()
	}
}
