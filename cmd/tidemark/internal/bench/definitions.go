package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// definition is one of a custom resource, of the version v1.
type definition struct {
	// group lacks the suffix of all groups of a run.
	group, plural, kind string
	// role is the value of a label. All definitions of a role are removed together.
	role string
	// namespaced or cluster-wide.
	namespaced bool
	// schema of objects, and members of the version besides it.
	schema, more string
	// properties of each part of a providerDefinition.
	properties int
}

// resource is the argument for collection.
func (d definition) resource() string { return d.plural + "." + d.group }

// domain is the suffix of the groups of a run.
func (b *bed) domain() string { return "run-" + b.suffix + ".bench.tidemark.dev" }

// definitionBody returns a definition as a client sends it.
func (b *bed) definitionBody(d definition) []byte {
	group, scope := d.group+"."+b.domain(), "Cluster"
	if d.namespaced {
		scope = "Namespaced"
	}
	return fmt.Appendf(nil, `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",`+
		`"metadata":{"name":"%[1]s.%[2]s","labels":{"bench.tidemark.dev/run":%[3]q,"bench.tidemark.dev/role":%[4]q},"annotations":{"bench.tidemark.dev/mark":"%[5]s"}},`+
		`"spec":{"group":%[2]q,"names":{"plural":%[1]q,"singular":"%[6]s","kind":%[7]q,"listKind":"%[7]sList"},"scope":%[8]q,`+
		`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%[9]s}%[10]s}]}}`,
		d.plural, group, b.suffix, d.role, mark, bytes.ToLower([]byte(d.kind)), d.kind, scope, d.schema, d.more)
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// instances is the URL of all objects of a definition.
func (b *bed) instances(d definition, query string) *url.URL {
	return b.target.url("/apis/"+d.group+"."+b.domain()+"/v1/"+d.plural, query)
}

// servePause is between two questions whether something is served, serveQuickly between
// those of a scenario that measures the time.
const (
	servePause   = 10 * time.Millisecond
	serveQuickly = time.Millisecond
)

// serveTimeout bounds the time until a definition is served.
const serveTimeout = time.Minute

// until calls ask with pauses until it returns true or an error, and returns the number
// of calls.
func until(ctx context.Context, pause time.Duration, ask func() (bool, error)) (asked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	for {
		asked++
		ok, err := ask()
		if ok || err != nil {
			return asked, err
		}
		if sleepUntil(ctx, time.Now().Add(pause)); ctx.Err() != nil {
			return asked, fmt.Errorf("the server does not serve what was defined: %w", ctx.Err())
		}
	}
}

// awaitServed waits until objects of a definition can be listed.
func (b *bed) awaitServed(ctx context.Context, c *client, d definition) error {
	_, err := until(ctx, servePause, func() (bool, error) {
		_, err := c.small(ctx, http.MethodGet, b.instances(d, "limit=1"), nil)
		if hasCode(err, http.StatusNotFound) {
			return false, nil
		}
		return err == nil, err
	})
	return err
}

// define makes a definition the first time that it is asked for, and waits until it
// is served.
func (b *bed) define(ctx context.Context, d definition) error {
	if b.defined[d.resource()] {
		return nil
	}
	b.roles[d.role] = true
	if err := b.store(ctx, b.admin, d); err != nil {
		return err
	}
	if err := b.awaitServed(ctx, b.admin, d); err != nil {
		return err
	}
	b.defined[d.resource()] = true
	return nil
}

// store makes a definition, which may not be served yet then.
func (b *bed) store(ctx context.Context, c *client, d definition) error {
	err := c.object(ctx, http.MethodPost, b.target.url(definitionsPath, ""), b.definitionBody(d), true)
	if notServed(err) {
		return &skipError{"definitions of custom resources: " + err.Error()}
	}
	return err
}

// Definitions may take so long to go away: some servers remove them a few at a time.
const (
	undefineTimeout = 2 * time.Minute
	undefineEach    = 2 * time.Second
	// gonePause is between two looks whether they are gone: a look is at all of them.
	gonePause = 250 * time.Millisecond
)

// undefine removes the definitions of a role with their objects, also when the
// context has ended, and waits until they are gone.
func (b *bed) undefine(ctx context.Context, role string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undefineTimeout+time.Duration(b.options.Definitions)*undefineEach)
	defer cancel()
	selector := url.QueryEscape("bench.tidemark.dev/run=" + b.suffix + ",bench.tidemark.dev/role=" + role)
	_, err := b.admin.small(ctx, http.MethodDelete, b.target.url(definitionsPath, "labelSelector="+selector), nil)
	if notServed(err) {
		return nil // nor could there be any
	}
	for err == nil {
		var left []byte
		left, err = b.admin.small(ctx, http.MethodGet, b.target.url(definitionsPath, "limit=1&labelSelector="+selector), nil)
		if err == nil && !bytes.Contains(left, markBytes) {
			delete(b.roles, role)
			return nil
		}
		sleepUntil(ctx, time.Now().Add(min(gonePause, b.options.Duration)))
		err = errors.Join(err, ctx.Err())
	}
	return fmt.Errorf("definitions with the label %s are left: %w", selector, err)
}
