package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
)

// Issued are bearer tokens that a process makes for users at any time. They are valid until it ends.
// The zero value has none. It is safe for concurrent use.
type Issued struct {
	mu    sync.RWMutex
	users map[[sha256.Size]byte]*User // guarded by mu
}

// maxIssued limits the tokens of an Issued.
const maxIssued = 10_000

// Issue returns a new token for a user. It returns an error if there are 10,000 tokens.
func (i *Issued) Issue(u *User) (string, error) {
	var b [32]byte
	rand.Read(b[:])
	token := hex.EncodeToString(b[:])
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.users) >= maxIssued {
		return "", errors.New("there are 10000 issued tokens, and no more are made")
	}
	if i.users == nil {
		i.users = map[[sha256.Size]byte]*User{}
	}
	i.users[NewToken(token).Sum] = u.InGroup()
	return token, nil
}

// AuthenticateToken implements Tokens. The tokens carry no audiences.
func (i *Issued) AuthenticateToken(_ context.Context, t Token, audiences []string) (*User, []string, error) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.users[t.Sum], audiences, nil
}
