package encryption

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	kmsapi "k8s.io/kms/apis/v2"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemark-dev/tidemark/internal/uuid"
)

const (
	// seedTTL is how long a seed encrypts after the last time that the plugin was well. As in
	// kube-apiserver: values that are rewritten three minutes after the plugin changed its key have
	// the new one.
	seedTTL = 3 * time.Minute
	// While the plugin is healthy, its status is read every pollWell, so that a seed does not
	// expire; otherwise every pollIll.
	pollWell = 20 * time.Second
	pollIll  = 10 * time.Second
	// maxDataKeys bounds the data keys that were decrypted, of 100 bytes each. There is one for each
	// start and each change of the plugin's key.
	maxDataKeys = 1024
	// refuseFor is how long no data key is asked for after a plugin did not respond, so that
	// a read of many objects fails at once.
	refuseFor = time.Second
	// patience is how long values are tried again since the first call for a data key failed: the
	// plugin may restart. All values share it.
	patience = 10 * time.Second
	// streakGap is the pause after which a failed call begins a new streak, if the plugin is
	// healthy.
	streakGap = time.Minute
)

// kms is the method of a KMS plugin. It follows the plugin's status in the background.
type kms struct {
	name    string
	timeout time.Duration // of a call
	client  kmsapi.KeyManagementServiceClient
	now     func() time.Time
	log     *slog.Logger

	state atomic.Pointer[kmsState] // nil: the plugin has not been well yet
	// generation is the number of the last change of the plugin's key; zero: it has not changed since values were
	// first read. It is set after state.
	generation atomic.Uint64

	checking sync.Mutex // one check at a time
	version  string     // of the plugin's API; guarded by checking, as the next one
	well     time.Time  // when the plugin was well at the last time
	health   atomic.Pointer[error]

	calling sync.Mutex // held during a call for a data key; locked before mu
	refused time.Time  // until then, data keys are not asked for; guarded by calling, as the next two
	refusal error      // of the last call that failed
	closed  bool

	mu      sync.Mutex
	keys    map[[sha256.Size]byte]dataKey // guarded by mu, as the next one
	failing streak

	first chan struct{}   // closed after the first check
	life  context.Context // until close
	stop  context.CancelFunc
	done  chan struct{} // closed when the loop has ended
	hang  func() error  // closes the connection
}

// streak is a series of calls for data keys that all failed.
type streak struct {
	first, last time.Time // zero: the last call succeeded
}

// kmsState is the data key that encrypts. It is immutable, except for expires.
type kmsState struct {
	key   dataKey
	plain []byte   // of the key
	made  envelope // without its data
	keyID string
	tail  []byte // made, encoded
	// expires has a monotonic time, as those that it is compared with: a clock that jumps changes nothing.
	expires atomic.Pointer[time.Time]
}

var errNotChecked = errors.New("the KMS plugin was not asked yet")

func newKMS(c Config, k *apiserver.KMSConfiguration) (*kms, error) {
	client, hang, err := dial(k.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("could not configure KMSv2-Plugin's probe %q, error: %w", k.Name, err)
	}
	return followKMS(c, k, client, hang), nil
}

// followKMS begins to follow a plugin. Hang is called by close.
func followKMS(c Config, k *apiserver.KMSConfiguration, client kmsapi.KeyManagementServiceClient, hang func() error) *kms {
	ctx, stop := context.WithCancel(context.Background())
	p := &kms{
		name: k.Name, timeout: k.Timeout.Duration, client: client, now: c.Now, log: c.Log,
		keys:  map[[sha256.Size]byte]dataKey{},
		first: make(chan struct{}), life: ctx, stop: stop, done: make(chan struct{}), hang: hang,
	}
	p.health.Store(&errNotChecked)
	go p.follow(ctx)
	return p
}

// follow reads the status until the context ends.
func (k *kms) follow(ctx context.Context) {
	defer close(k.done)
	for first := true; ; first = false {
		wait := pollWell
		before := *k.health.Load()
		err := k.check(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = pollIll
			if first || before == nil {
				k.log.Warn("encryption: a KMS plugin is unhealthy; it is called again", "plugin", k.name, "err", err)
			}
		case before != nil:
			k.log.Info("encryption: a KMS plugin is healthy", "plugin", k.name)
		}
		if first {
			close(k.first)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// close ends the calls under way and closes the connection.
func (k *kms) close() {
	k.stop()
	<-k.done
	k.calling.Lock()
	defer k.calling.Unlock()
	if !k.closed {
		k.closed = true
		if err := k.hang(); err != nil {
			k.log.Warn("encryption: the connection to a KMS plugin was not closed cleanly", "plugin", k.name, "err", err)
		}
	}
}

// check reads the plugin's status, and makes a new seed if its key has changed.
func (k *kms) check(ctx context.Context) error {
	k.checking.Lock()
	defer k.checking.Unlock()
	err := k.checkStatus(ctx)
	before := *k.health.Swap(&err)
	switch {
	case err == nil && before != nil:
		k.succeeded() // it is back
	case err != nil && before == nil:
		k.endStreakBefore(k.well) // an outage has its own patience
	}
	if err == nil {
		k.well = k.now()
	}
	return err
}

func (k *kms) checkStatus(ctx context.Context) error {
	expires := k.now().Add(seedTTL) // the expiry of the status that the plugin returns below
	call, cancel := context.WithTimeout(ctx, k.timeout)
	s, err := k.client.Status(call, &kmsapi.StatusRequest{})
	cancel()
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", k.name, err)
	}
	var errs []error
	if s.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", shortPath(s.Healthz)))
	}
	if s.Version != "v2" && s.Version != "v2beta1" {
		errs = append(errs, fmt.Errorf("expected KMSv2 API version v2, got %s", shortPath(s.Version)))
	} else {
		if k.version == "" {
			k.version = s.Version
		}
		if k.version != s.Version {
			errs = append(errs, fmt.Errorf("KMSv2 API version should not change after the initial status response version %s, got %s", k.version, s.Version))
		}
	}
	if err := checkKeyID(s.KeyId); err != nil {
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", hashID(s.KeyId), err))
	} else if err := k.renew(ctx, s.KeyId, expires); err != nil {
		errs = append(errs, err)
	}
	if err := utilerrors.Reduce(utilerrors.NewAggregate(errs)); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", k.name, err)
	}
	return nil
}

// renew extends the time of the seed if the plugin still has its key and can decrypt the seed. A plugin may have lost the
// key that it still names, and values that are written then could not be read after a restart. If the plugin has another
// key, renew makes a new seed.
func (k *kms) renew(ctx context.Context, keyID string, expires time.Time) error {
	if s := k.state.Load(); s != nil && s.keyID == keyID {
		if err := k.try(ctx, &s.made, s.plain); err != nil {
			return err
		}
		s.expires.Store(&expires)
		return nil
	}
	fresh, err := k.generate(ctx)
	if err != nil {
		return fmt.Errorf("failed to rotate DEK: %w", err)
	}
	if fresh.keyID != keyID {
		return fmt.Errorf("failed to rotate DEK: statusKeyIDHash=%q, encryptKeyIDHash=%q", hashID(keyID), hashID(fresh.keyID))
	}
	fresh.expires.Store(&expires)
	if before := k.state.Swap(fresh); before != nil || k.generation.Load() != 0 {
		k.generation.Store(generations.Add(1))
	}
	k.log.Info("encryption: a new data key", "plugin", k.name, "keyIDHash", hashID(keyID))
	return nil
}

// generate makes a seed and lets the plugin encrypt it. A seed that the plugin cannot decrypt again is an error: the
// values that it encrypts would be lost with the process.
func (k *kms) generate(ctx context.Context) (*kmsState, error) {
	plain, _, err := random(nil, seedSize)
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, k.timeout)
	r, err := k.client.Encrypt(call, &kmsapi.EncryptRequest{Plaintext: plain, Uid: uuid.New()})
	cancel()
	if err != nil {
		return nil, fmt.Errorf("failed to encrypt DEK, error: %w", err)
	}
	e := envelope{keyID: r.KeyId, source: r.Ciphertext, annotations: r.Annotations, kind: gcmSeed}
	if err := e.check(); err != nil {
		return nil, err
	}
	key, err := newDataKey(gcmSeed, plain)
	if err != nil {
		return nil, err
	}
	if err := k.try(ctx, &e, plain); err != nil {
		return nil, err
	}
	k.keep(e.cacheKey(), key)
	return &kmsState{key: key, plain: plain, made: e, keyID: e.keyID, tail: e.tail()}, nil
}

// try returns an error unless the plugin decrypts a data key that it has encrypted to the same key.
func (k *kms) try(ctx context.Context, e *envelope, plain []byte) error {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	r, err := k.client.Decrypt(ctx, &kmsapi.DecryptRequest{Ciphertext: e.source, Uid: uuid.New(), KeyId: e.keyID, Annotations: e.annotations})
	if err != nil {
		return fmt.Errorf("the plugin cannot decrypt the DEK that it has encrypted, so it is not used: %w", err)
	}
	if subtle.ConstantTimeCompare(r.Plaintext, plain) != 1 {
		return errors.New("the plugin decrypts the DEK that it has encrypted to another one, so it is not used")
	}
	return nil
}

// cached returns a data key from the cache, or nil.
func (k *kms) cached(id [sha256.Size]byte) dataKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[id]
}

// keep caches a data key.
func (k *kms) keep(id [sha256.Size]byte, key dataKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for old := range k.keys {
		if len(k.keys) < maxDataKeys {
			break
		}
		delete(k.keys, old) // any one: there are hardly ever that many
	}
	k.keys[id] = key
}

// ready implements method.
func (k *kms) ready() error {
	s := k.state.Load()
	if s == nil {
		return fmt.Errorf("the KMS plugin %q has given no data key yet: %w", k.name, k.err())
	}
	if now, at := k.now(), *s.expires.Load(); now.After(at) {
		return fmt.Errorf("encryptedDEKSource with keyID hash %q expired at %s (current time is %s)",
			hashID(s.keyID), at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// err is why the plugin is unhealthy, or nil.
func (k *kms) err() error { return *k.health.Load() }

// encrypt implements method. It uses a seed that has expired meanwhile, too.
func (k *kms) encrypt(dst, value, place []byte) ([]byte, error) {
	s := k.state.Load()
	if s == nil {
		return nil, k.ready()
	}
	const overhead = infoSize + 12 + 16
	dst = protowire.AppendTag(dst, fieldData, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(value)+overhead))
	dst, err := s.key.encrypt(dst, value, place)
	if err != nil {
		return nil, err
	}
	return append(dst, s.tail...), nil
}

// open implements method. It calls the plugin if the data key is not cached.
func (k *kms) open(ctx context.Context, encrypted, place []byte) ([]byte, error) {
	e, err := readEnvelope(encrypted)
	if err != nil {
		return nil, err
	}
	key, err := k.dataKey(ctx, &e)
	if err != nil {
		return nil, err
	}
	return key.open(ctx, e.data, place)
}

// current implements method.
func (k *kms) current(encrypted []byte) bool {
	e, err := readEnvelope(encrypted)
	s := k.state.Load()
	if s == nil { // the key is not known yet
		k.generation.CompareAndSwap(0, generations.Add(1))
	}
	return err == nil && (s == nil || s.keyID == e.keyID && e.kind == gcmSeed)
}

// dataKey returns the data key of an envelope. One that is cached waits for no call.
func (k *kms) dataKey(ctx context.Context, e *envelope) (dataKey, error) {
	id := e.cacheKey()
	if key := k.cached(id); key != nil {
		return key, nil
	}
	k.calling.Lock()
	defer k.calling.Unlock()
	if key := k.cached(id); key != nil { // the call before was for it
		return key, nil
	}
	switch {
	case k.life.Err() != nil:
		return nil, errClosed
	case k.now().Before(k.refused), k.exhausted() && k.err() != nil: // the status shows when it is back
		return nil, k.refusal
	}
	began := k.now()
	call, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	defer context.AfterFunc(k.life, cancel)()
	r, err := k.client.Decrypt(call, &kmsapi.DecryptRequest{Ciphertext: e.source, Uid: uuid.New(), KeyId: e.keyID, Annotations: e.annotations})
	if err != nil {
		if k.life.Err() != nil {
			return nil, errClosed
		}
		err = fmt.Errorf("failed to decrypt DEK, error: %w", err)
		if ctx.Err() == nil {
			k.failed(began, err, call.Err() != nil)
		}
		return nil, err
	}
	k.succeeded()
	key, err := newDataKey(e.kind, r.Plaintext)
	if err != nil {
		return nil, err
	}
	k.keep(id, key)
	return key, nil
}

// failed records a call for a data key that began at a time, and failed. The caller holds calling.
func (k *kms) failed(began time.Time, err error, unresponded bool) {
	now := k.now()
	k.mu.Lock()
	if k.failing.first.IsZero() || k.err() == nil && began.Sub(k.failing.last) > streakGap {
		k.failing.first = began
	}
	k.failing.last = now
	k.mu.Unlock()
	k.refusal = err
	switch {
	case unresponded && k.exhausted():
		k.refused = now.Add(pollIll)
	case unresponded:
		k.refused = now.Add(refuseFor)
	}
}

// succeeded ends a streak of failed calls.
func (k *kms) succeeded() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failing = streak{}
}

// endStreakBefore ends a streak of failed calls that began before a time.
func (k *kms) endStreakBefore(at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failing.first.Before(at) {
		k.failing = streak{}
	}
}

// exhausted reports whether calls for data keys have failed for longer than patience.
func (k *kms) exhausted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.failing.first.IsZero() && k.now().Sub(k.failing.first) > patience
}

// mayRecover reports whether the last call for a data key failed, and patience is left.
func (k *kms) mayRecover() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.failing.first.IsZero() && k.now().Sub(k.failing.first) <= patience
}

// errClosed: another configuration took over.
var errClosed = errors.New("the encryption configuration was replaced")

// hashID is a key ID as messages have it.
func hashID(id string) string {
	if id == "" {
		return ""
	}
	return hashOf([]byte(id))
}
