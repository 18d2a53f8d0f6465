// Package kmstest has a KMS plugin for tests: version 2 of the protocol, over a unix socket.
package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
)

// Plugin is a KMS plugin. Its keys follow from their IDs, so another plugin with the same IDs
// has the same keys. All methods are safe for concurrent use.
type Plugin struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	path   string
	server *grpc.Server

	mu      sync.Mutex
	keyID   string
	healthz string
	lost    map[string]bool // IDs of keys
	garble  bool            // Encrypt returns ciphertext that Decrypt rejects
	hang    chan struct{}   // not nil: calls wait until it is closed
	calls   map[string]int
}

// Start starts a plugin whose key has an ID. It ends with the test.
func Start(t testing.TB, keyID string) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{path: filepath.Join(dir, "s"), keyID: keyID, healthz: "ok", lost: map[string]bool{}, calls: map[string]int{}}
	p.Restart(t)
	t.Cleanup(func() {
		p.Hang(false)
		p.Stop()
		os.RemoveAll(dir)
	})
	return p
}

// Endpoint is where the plugin listens, as configurations have it.
func (p *Plugin) Endpoint() string { return "unix://" + p.path }

// Stop ends the plugin.
func (p *Plugin) Stop() { p.server.Stop() }

// Restart starts the plugin after Stop.
func (p *Plugin) Restart(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	p.server = grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(p.server, p)
	go p.server.Serve(l)
}

// Set changes the key that encrypts, and the health that the plugin reports: "ok" or an error.
func (p *Plugin) Set(keyID, healthz string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keyID, p.healthz = keyID, healthz
}

// Lose makes the plugin refuse to decrypt with a key.
func (p *Plugin) Lose(keyID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost[keyID] = true
}

// Garble makes Encrypt return ciphertext that Decrypt rejects.
func (p *Plugin) Garble(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.garble = on
}

// Hang makes calls wait, until Hang(false) or their deadline.
func (p *Plugin) Hang(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.hang == nil:
		p.hang = make(chan struct{})
	case !on && p.hang != nil:
		close(p.hang)
		p.hang = nil
	}
}

// Calls returns how often a method was called: "Status", "Encrypt" or "Decrypt".
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// begin counts a call and waits while the plugin hangs. It returns the values of Set.
func (p *Plugin) begin(ctx context.Context, method string) (keyID, healthz string, err error) {
	p.mu.Lock()
	p.calls[method]++
	hang, keyID, healthz := p.hang, p.keyID, p.healthz
	p.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return "", "", ctx.Err()
		}
	}
	return keyID, healthz, nil
}

// annotation is an annotation that the plugin adds to each data key, and expects back.
const annotation = "kmstest.example"

func aead(keyID string) cipher.AEAD {
	key := sha256.Sum256([]byte(keyID))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the size is right
	}
	a, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return a
}

// Status implements the plugin's API.
func (p *Plugin) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	keyID, healthz, err := p.begin(ctx, "Status")
	return &kmsapi.StatusResponse{Version: "v2", Healthz: healthz, KeyId: keyID}, err
}

// Encrypt implements the plugin's API.
func (p *Plugin) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	keyID, _, err := p.begin(ctx, "Encrypt")
	if err != nil {
		return nil, err
	}
	encrypted := aead(keyID).Seal(nil, nil, r.Plaintext, nil)
	p.mu.Lock()
	if p.garble {
		encrypted[0]++
	}
	p.mu.Unlock()
	return &kmsapi.EncryptResponse{
		Ciphertext: encrypted, KeyId: keyID,
		Annotations: map[string][]byte{annotation: []byte(keyID)},
	}, nil
}

// Decrypt implements the plugin's API.
func (p *Plugin) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	if _, _, err := p.begin(ctx, "Decrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	lost := p.lost[r.KeyId]
	p.mu.Unlock()
	if lost || string(r.Annotations[annotation]) != r.KeyId {
		return nil, errors.New("no such key")
	}
	plain, err := aead(r.KeyId).Open(nil, nil, r.Ciphertext, nil)
	return &kmsapi.DecryptResponse{Plaintext: plain}, err
}
