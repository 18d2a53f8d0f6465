package world

import (
	"fmt"
	"net"

	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/kubelet"
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
		Timeout: c.Timeout, Own: kubelet.Listens(on...), Dial: p.DialNodes, Log: p.logOf(logCertificates),
	})
	if err != nil {
		return fmt.Errorf("kubelets: %w", err)
	}
	p.connections = connect.New(kubelets)
	p.collectors = append(p.collectors, p.connections.Collectors()...)
	return nil
}

// closeConnections closes the connections to kubelets that no request uses.
func (p *process) closeConnections() {
	if p.connections != nil {
		p.connections.Kubelets().CloseIdleConnections()
	}
}
