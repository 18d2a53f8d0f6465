package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"

	"golang.org/x/crypto/nacl/secretbox"
)

// method encrypts and decrypts values in one way with one key. It also authenticates the place
// where the value is stored. All methods are safe for concurrent use.
type method interface {
	// encrypt appends the encrypted value to dst. It does not wait for anything.
	encrypt(dst, value, place []byte) ([]byte, error)
	// open decrypts. The result may share memory with encrypted.
	open(ctx context.Context, encrypted, place []byte) ([]byte, error)
	// current reports whether encrypt would use the same key. open has succeeded.
	current(encrypted []byte) bool
	// ready returns why encrypt must not be called, or nil.
	ready() error
}

var (
	errShort   = errors.New("the stored data was shorter than the required size")
	errBlocks  = errors.New("the stored data is not a multiple of the block size")
	errNoPad   = errors.New("invalid PKCS7 data (empty or not padded)")
	errPadding = errors.New("invalid padding on input")
)

// local has the methods that all methods with a key in the configuration share.
type local struct{}

func (local) current([]byte) bool { return true }
func (local) ready() error        { return nil }

// identity stores values as they are.
type identity struct{ local }

var errEncrypted = errors.New("identity transformer tried to read encrypted data")

func (identity) encrypt(dst, value, _ []byte) ([]byte, error) { return append(dst, value...), nil }

func (identity) open(_ context.Context, encrypted, _ []byte) ([]byte, error) {
	if isEncrypted(encrypted) {
		return nil, errEncrypted
	}
	return encrypted, nil
}

// gcm is AES-GCM with a random nonce: nonce 12, encrypted value and tag.
type gcm struct {
	local
	aead cipher.AEAD
}

func newGCM(key []byte) (gcm, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return gcm{}, err
	}
	aead, err := cipher.NewGCM(block)
	return gcm{aead: aead}, err
}

func (g gcm) encrypt(dst, value, place []byte) ([]byte, error) {
	dst, nonce, err := random(dst, g.aead.NonceSize())
	if err != nil {
		return nil, err
	}
	return g.aead.Seal(dst, nonce, value, place), nil
}

func (g gcm) open(_ context.Context, encrypted, place []byte) ([]byte, error) {
	n := g.aead.NonceSize()
	if len(encrypted) < n {
		return nil, errShort
	}
	return g.aead.Open(nil, encrypted[:n], encrypted[n:], place)
}

// cbc is AES-CBC with a random IV and PKCS #7 padding: IV 16, encrypted value. It authenticates
// nothing.
type cbc struct {
	local
	block cipher.Block
}

func newCBC(key []byte) (cbc, error) {
	block, err := aes.NewCipher(key)
	return cbc{block: block}, err
}

func (c cbc) encrypt(dst, value, _ []byte) ([]byte, error) {
	dst, iv, err := random(dst, aes.BlockSize)
	if err != nil {
		return nil, err
	}
	start := len(dst)
	dst = append(dst, value...)
	pad := aes.BlockSize - len(value)%aes.BlockSize
	for range pad {
		dst = append(dst, byte(pad))
	}
	cipher.NewCBCEncrypter(c.block, iv).CryptBlocks(dst[start:], dst[start:])
	return dst, nil
}

func (c cbc) open(_ context.Context, encrypted, _ []byte) ([]byte, error) {
	if len(encrypted) < aes.BlockSize {
		return nil, errShort
	}
	iv, data := encrypted[:aes.BlockSize], encrypted[aes.BlockSize:]
	if len(data)%aes.BlockSize != 0 {
		return nil, errBlocks
	}
	if len(data) == 0 {
		return nil, errNoPad
	}
	value := make([]byte, len(data))
	cipher.NewCBCDecrypter(c.block, iv).CryptBlocks(value, data)
	last := value[len(value)-1]
	size := len(value) - int(last)
	if last == 0 || size < 0 {
		return nil, errNoPad
	}
	for _, b := range value[size:] {
		if b != last {
			return nil, errPadding
		}
	}
	return value[:size], nil
}

// box is XSalsa20 and Poly1305 with a random nonce: nonce 24, tag and encrypted value. It
// authenticates the value, not its place.
type box struct {
	local
	key [32]byte
}

const boxNonce = 24

// errBox has kube-apiserver's words: the tag does not match.
var errBox = errors.New("output array was not large enough for encryption")

func (b *box) encrypt(dst, value, _ []byte) ([]byte, error) {
	dst, nonce, err := random(dst, boxNonce)
	if err != nil {
		return nil, err
	}
	return secretbox.Seal(dst, value, (*[boxNonce]byte)(nonce), &b.key), nil
}

func (b *box) open(_ context.Context, encrypted, _ []byte) ([]byte, error) {
	if len(encrypted) < boxNonce+secretbox.Overhead {
		return nil, errShort
	}
	nonce, data := encrypted[:boxNonce], encrypted[boxNonce:]
	value, ok := secretbox.Open(make([]byte, 0, len(data)-secretbox.Overhead), data, (*[boxNonce]byte)(nonce), &b.key)
	if !ok {
		return nil, errBox
	}
	return value, nil
}

// random appends n random bytes to dst, and returns them too.
func random(dst []byte, n int) (all, added []byte, err error) {
	start := len(dst)
	for range n {
		dst = append(dst, 0)
	}
	_, err = rand.Read(dst[start:])
	return dst, dst[start:len(dst):len(dst)], err
}
