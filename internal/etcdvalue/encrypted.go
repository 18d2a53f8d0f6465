package etcdvalue

import (
	"cmp"
	"context"

	"github.com/tidemark-dev/tidemark/internal/encryption"
)

// plain is the configuration of a Codec without one: nothing is encrypted.
var plain = encryption.NewActive(new(encryption.Set))

// Use makes the Codec encrypt and decrypt with a configuration; nil: with none. It comes before the
// methods that do.
func (c *Codec) Use(a *encryption.Active) { c.active = a }

func (c *Codec) encryption() *encryption.Active { return cmp.Or(c.active, plain) }

// Encrypt returns the value in etcd of an object, given its collection, its key in the store and the
// arguments of Encode: the encoded object, encrypted if the configuration requires it. The error is
// the reason why it cannot be encrypted at present.
func (c *Codec) Encrypt(collection, key string, object []byte, revisionAt int) ([]byte, error) {
	value, err := c.Encode(collection, object, revisionAt)
	if err != nil {
		return nil, err
	}
	return c.encryption().EncryptValue(collection, value, []byte(c.Keys.Of(collection, key)))
}

// Open decodes the value in etcd of an object, given its collection and its key in the store. If it
// cannot be decrypted, the error is an *encryption.OpenError.
func (c *Codec) Open(ctx context.Context, collection, key string, value []byte) (Decoded, error) {
	opened, outdated, err := c.encryption().OpenValue(ctx, collection, value, []byte(c.Keys.Of(collection, key)))
	if err != nil {
		return Decoded{}, err
	}
	d, err := c.Decode(collection, opened)
	d.Outdated = d.Outdated || outdated
	return d, err
}

// Generation grows with each change of the key of a collection; see encryption.Active.
func (c *Codec) Generation(collection string) uint64 { return c.encryption().Generation(collection) }
