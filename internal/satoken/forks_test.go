package satoken

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestForkKey: forks sign with a key of their own, which no verifier of the server's tokens trusts, and which signs nothing
// but tokens of forks. It outlives a restart.
func TestForkKey(t *testing.T) {
	dir := t.TempDir()
	open := func() *Authority {
		a, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	find := func(string, string, string) (Found, bool) { return Found{UID: "u"}, true }
	secret := func(string, string) (StoredSecret, bool) { return StoredSecret{}, false }
	server := open()
	fork := server.Fork().For(find, secret, nil)
	issued, err := fork.Issue(Subject{Namespace: "ns", ServiceAccount: Ref{"robot", "u"}}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := fork.IssueStored("ns", "secret", Ref{"robot", "u"})
	if err != nil {
		t.Fatal(err)
	}
	var keys struct {
		Keys []struct {
			ID string `json:"kid"`
		}
	}
	published, err := server.KeySet()
	if err != nil || json.Unmarshal(published, &keys) != nil {
		t.Fatalf("%v: %s", err, published)
	}
	for _, token := range []string{issued.Token, stored} {
		var h header
		if first, _, _ := strings.Cut(token, "."); !decode(first, &h) {
			t.Fatal("the header cannot be read")
		}
		for _, k := range keys.Keys {
			if k.ID == h.Key {
				t.Error("a token of the fork is signed by a key that the server publishes")
			}
		}
		if !OfFork(token) {
			t.Error("it is not known as one of a fork")
		}
	}
	again := open().ForkAs(fork.Forks()).For(find, secret, nil)
	if c, err := again.parse(issued.Token); c == nil || err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if c, err := server.For(find, secret, nil).parse(issued.Token); err == nil {
		t.Errorf("the server accepts %+v", c)
	}
	// The key of forks, without the claim.
	k := fork.forks.Load().signer
	bare, err := k.sign([]byte(`{"iss":"` + DefaultIssuer + `","sub":"system:serviceaccount:ns:robot","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"robot","uid":"u"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Authority{server.For(find, secret, nil), fork} {
		if c, err := a.parse(bare); err == nil {
			t.Errorf("a token without the claim is %+v", c)
		}
	}
	if all := server.verifiers(""); slices.ContainsFunc(all, func(other *key) bool { return other.id == k.id }) {
		t.Error("the server verifies by the key of forks")
	}
}
