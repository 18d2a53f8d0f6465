package main

import (
	"time"

	"github.com/spf13/pflag"
)

// registerKubelets registers the flags of connections to kubelets.
func (f *serveFlags) registerKubelets(flags *pflag.FlagSet) {
	k := &f.server.Kubelets
	flags.StringVar(&k.ClientCertFile, "kubelet-client-certificate", "", "PEM file of the client certificate for kubelets; its user needs the rights of system:kubelet-api-admin there (default: none is presented)")
	flags.StringVar(&k.ClientKeyFile, "kubelet-client-key", "", "PEM file of the private key of --kubelet-client-certificate")
	flags.StringVar(&k.CAFile, "kubelet-certificate-authority", "", "PEM file with the authorities of kubelets' certificates (default: they are not verified)")
	flags.StringSliceVar(&k.AddressTypes, "kubelet-preferred-address-types", []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"}, "types of the addresses of a node, the preferred one first")
	flags.DurationVar(&k.Timeout, "kubelet-timeout", 5*time.Second, "limit of the time to connect to a kubelet")
}
