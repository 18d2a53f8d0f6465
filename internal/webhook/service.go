package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Services returns a Resolve that finds Services in a store.
func Services(s *store.Store) Resolve {
	return func(namespace, name string, port int32) (string, error) {
		o := s.Any().Get("services", namespace+"/"+name)
		if o == nil {
			return "", fmt.Errorf("service %q not found", name)
		}
		var service corev1.Service
		if err := json.Unmarshal(o.Bytes(), &service); err != nil {
			return "", err
		}
		return addressOf(&service, port)
	}
}

// addressOf returns the host and port of a Service.
func addressOf(service *corev1.Service, port int32) (string, error) {
	host := service.Spec.ClusterIP
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		host = service.Spec.ExternalName
	case host == "" || host == corev1.ClusterIPNone:
		return "", errors.New(`cannot route to service with ClusterIP "None"`)
	case !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }):
		return "", fmt.Errorf("no service port %d found for service %q", port, service.Name)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}
