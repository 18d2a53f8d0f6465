package satoken

import (
	"testing"
	"time"
)

// TestVerifyMeanwhile: who shows a token does not wait for a key that is being made,
// which takes longer than all else.
func TestVerifyMeanwhile(t *testing.T) {
	a, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	a.making.Lock() // as while a key is made
	defer a.making.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		token := encoding.EncodeToString([]byte(`{"alg":"RS256","kid":"another"}`)) + ".e30.AAAA"
		if u, _, err := a.Authenticate(token, nil); u != nil || err != nil {
			t.Errorf("a token of another issuer: %v, %v", u, err)
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("a token waits for a key that is being made")
	}
}
