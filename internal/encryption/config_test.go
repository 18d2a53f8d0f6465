package encryption

import (
	"encoding/base64"
	"strings"
	"testing"
)

// secretOf returns a key of 32 bytes that follows from a name.
func secretOf(name string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32]))
}

// TestRefused has kube-apiserver's words, and no message contains a key.
func TestRefused(t *testing.T) {
	const kms = "kms: {apiVersion: v2, name: p, endpoint: 'unix:///p.sock'"
	for _, c := range []struct{ config, want string }{
		{"", "Object 'Kind' is missing in ''"},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: Nope\n", `no kind "Nope" is registered for version "apiserver.config.k8s.io/v1"`},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n", "resources: Required value: at least one resources is required"},
		{rules("secrets", "identity: {}") + "extra: 1\n", `strict decoding error: unknown field "extra"`},
		{rules("secrets", "aescbc: {keys: [{name: a, secrets: x}]}"), `unknown field "resources[0].providers[0].aescbc.keys[0].secrets"`},
		{rules("secrets", "aescbc: {keys: [{name: a, secret: MTIzNDU=}]}"),
			`resources[0].providers[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 5, expected one of [16 24 32]`},
		{rules("secrets", "secretbox: {keys: [{name: a, secret: "+key16+"}]}"), `Invalid value: "REDACTED": secret is not of the expected length, got 16, expected one of [32]`},
		{rules("secrets", "aesgcm: {keys: [{name: a, secret: 'no/base=64'}]}"), `Invalid value: "REDACTED": secrets must be base64 encoded`},
		{rules("secrets", "aesgcm: {keys: [{secret: "+key16+"}]}"), "keys[0].name: Required value: name is a mandatory field for a key"},
		{rules("secrets", "aesgcm: {keys: [{name: a}]}"), "keys[0].secret: Required value: secret is a mandatory field for a key"},
		{rules("secrets", "aesgcm: {keys: []}"), "aesgcm.keys: Required value: at least one keys is required"},
		{rules("secrets"), "resources[0].providers: Required value: at least one resources[0].providers is required"},
		{rules("secrets", "{}"), "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"},
		{rules("secrets", aesgcmKeys("zz")+"\n    identity: {}"), "more than one provider specified in a single element, should split into different list elements"},
		{rules("Secrets", "identity: {}"), "resource name should not contain capital letters"},
		{rules("*", "identity: {}"), "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"},
		{rules("secrets.*", "identity: {}"), "encrypting the same resource across groups is not supported"},
		{rules("events.events.k8s.io", "identity: {}"), "'*.events.k8s.io' objects are stored using the 'events' API group in etcd"},
		{rules("a.extensions", "identity: {}"), "'extensions' group has been removed and cannot be used for encryption"},
		{rules("serviceipallocations", "identity: {}"), "resources which do not have REST API/s cannot be encrypted"},
		{rules("secrets,secrets", "identity: {}"), "the same resource cannot be specified multiple times"},
		{rules("secrets,*.", "identity: {}"), "is not allowed as they will be masked"},
		{rules("secrets,*.*", "identity: {}"), "is not allowed as they will be masked"},
		{rules("secrets", kms+"}", kms+"}"), "duplicate KMS provider name p, names must be unique"},
		{rules("secrets", "kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///p.sock'}"), "invalid KMS provider name a:b, must not contain ':'"},
		{rules("secrets", "kms: {apiVersion: v2, name: a, endpoint: 'http://p'}"), `unsupported scheme "http" for KMS provider, only unix is supported`},
		{rules("secrets", "kms: {apiVersion: v2, name: a}"), "endpoint is a mandatory field for a kms"},
		{rules("secrets", kms+", timeout: 0s}"), "timeout should be a positive value"},
		{rules("secrets", kms+", cachesize: 5}"), "cachesize is not supported in v2"},
		{rules("secrets", "kms: {apiVersion: v3, name: a, endpoint: 'unix:///p.sock'}"), "only v1 and v2 are supported"},
		{rules("secrets", "kms: {name: a, endpoint: 'unix:///p.sock'}"), "KMSv1 is deprecated"},
		{rules("*.*", "identity: {}") + "- resources: [secrets]\n  providers: [{identity: {}}]\n", `resource "secrets" is masked by earlier rule "*.*"`},
		{rules("*.", "identity: {}") + "- resources: [secrets]\n  providers: [{identity: {}}]\n", `resource "secrets" is masked by earlier rule "*."`},
	} {
		s, err := newSet(Config{Path: "config.yaml"}.withDefaults(), []byte(c.config))
		if err == nil {
			s.Close()
			t.Errorf("accepted, want %s:\n%s", c.want, c.config)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s:\n%s", err, c.want, c.config)
		}
		for _, secret := range []string{key16, key32, secretOf("zz"), "MTIzNDU=", "no/base=64"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the message has a key: %v", err)
			}
		}
	}
}

// TestAccepted has forms that other configurations use.
func TestAccepted(t *testing.T) {
	for _, config := range []string{
		`{"kind":"EncryptionConfiguration","apiVersion":"apiserver.config.k8s.io/v1","resources":[{"resources":["secrets"],"providers":[{"identity":{}}]}]}`,
		strings.Replace(strings.Replace(rules("secrets", "identity: {}"), "EncryptionConfiguration", "EncryptionConfig", 1), "apiserver.config.k8s.io/v1", "v1", 1),
		rules("secrets", aesgcmKeys("a")) + "- resources: [secrets]\n  providers: [{identity: {}}]\n",
	} {
		mustSet(t, config)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(rules("secrets,*.apps", aescbcKeys("a"), secretboxKeys("b"), "identity: {}")))
	f.Add([]byte(rules("*.*", "kms: {apiVersion: v2, name: a, endpoint: 'unix:///p.sock', timeout: 3s}")))
	f.Fuzz(func(t *testing.T, config []byte) {
		parsed, err := parse(config)
		if err == nil && len(parsed.Resources) == 0 {
			t.Error("an empty configuration was accepted")
		}
	})
}
