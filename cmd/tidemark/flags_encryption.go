package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// registerEncryption registers the flags of encryption at rest.
func (f *serveFlags) registerEncryption(flags *pflag.FlagSet) {
	e := &f.server.Encryption
	flags.StringVar(&e.ProviderConfigFile, "encryption-provider-config", "", "file with an EncryptionConfiguration: which objects are encrypted at rest, and with which keys")
	flags.BoolVar(&e.AutomaticReload, "encryption-provider-config-automatic-reload", false, "read the file of --encryption-provider-config again when it changes")
}

func (f *serveFlags) checkEncryption() error {
	if e := &f.server.Encryption; e.AutomaticReload && e.ProviderConfigFile == "" {
		return errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
	return nil
}
