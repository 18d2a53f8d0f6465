package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// openDir serves a directory that no server uses to this process alone, without changing it.
func (f *timelineFlags) openDir(ctx context.Context) (config *rest.Config, stop func(), err error) {
	group, err := groupAccess(f.permissions)
	if err != nil {
		return nil, nil, usageError{err}
	}
	s := &tidemark.Server{InProcess: true, ReadOnly: true, Storage: &datadir.Dir{Path: f.dataDir, GroupAccess: group, ReadOnly: true},
		Encryption: tidemark.Encryption{ProviderConfigFile: f.encryption}}
	if err := s.Start(ctx); err != nil {
		if errors.Is(err, datadir.ErrInUse) {
			return nil, nil, fmt.Errorf("%w, or ask it: --kubeconfig=%s", err, filepath.Join(f.dataDir, datadir.KubeconfigFile))
		}
		return nil, nil, err
	}
	return s.RESTConfig(), func() { s.Close() }, nil
}
