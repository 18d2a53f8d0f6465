package bench

import (
	"context"
	"fmt"
	"net/http"
)

// The access scenarios measure the cost of RBAC. Two users send the same requests: a member of
// system:masters, which no rule restricts, and a user with one RoleBinding among many. The client
// impersonates both, so that everything but the decision is the same, with every server and every
// credential.

const (
	rolesOf        = "roles"
	roleBindingsOf = "rolebindings"

	// accessNamespaces have as many roles and bindings each as the two following numbers say.
	accessNamespaces  = 10
	accessRoles       = 100
	accessRoleBinding = 1000
)

// accessUser is the user with one binding.
const accessUser = "bench-user"

var accessVariants = []variant{{name: "get", round: accessGet}, {name: "create", round: accessCreate}}

func accessGet(ctx context.Context, b *bed) ([]row, error) {
	ns, err := b.podsNamespace(ctx)
	if err != nil {
		return nil, err
	}
	return b.access(ctx, ns, func(ctx context.Context, c *client, o op) error {
		u := b.object(ns, podsOf, podName(int(spread(uint64(o.number))%uint64(b.options.Objects))))
		c.revision = 0 // another pod's says nothing of this one's
		return c.object(ctx, http.MethodGet, u, nil, false)
	})
}

func accessCreate(ctx context.Context, b *bed) ([]row, error) {
	ns, err := b.namespace(ctx, "made")
	if err != nil {
		return nil, err
	}
	u := b.collection(ns, configMapsOf, "")
	rows, err := b.access(ctx, ns, func(ctx context.Context, c *client, o op) error {
		body := b.objects.configMap(fmt.Sprintf("made-%09d", b.serial.Add(1)), uint64(o.number), 0, "")
		return c.object(ctx, http.MethodPost, u, body, true)
	})
	if err != nil {
		return nil, err
	}
	return rows, b.empty(ctx, ns, configMapsOf)
}

// accessClients is how many clients send requests.
const accessClients = 16

// access measures requests in a namespace by both users, in an order that changes with each round.
func (b *bed) access(ctx context.Context, ns string, send func(ctx context.Context, c *client, o op) error) ([]row, error) {
	if err := b.bind(ctx, ns); err != nil {
		return nil, err
	}
	users := []struct{ name, user, group string }{
		{"system:masters", "bench-master", "system:masters"},
		{"one binding", accessUser, "bench-group"},
	}
	rows := make([]row, len(users))
	b.accessRounds++
	for i := range users {
		k := (i + b.accessRounds) % len(users)
		header := b.json.Clone()
		header["Impersonate-User"], header["Impersonate-Group"] = []string{users[k].user}, []string{users[k].group}
		w := b.crew(accessClients, func(ctx context.Context, c *client, o op) error {
			c.json = header
			return send(ctx, c, o)
		})
		f, err := w.measure(ctx)
		if err != nil {
			return nil, err
		}
		rows[k] = row{name: users[k].name, loop: w.loop(), Measurements: f}
	}
	return rows, nil
}

// bind makes the roles and bindings: in the measured namespace, where one of them is the user's,
// and in others.
func (b *bed) bind(ctx context.Context, measured string) error {
	if err := b.bindIn(ctx, measured, true); err != nil {
		return err
	}
	for i := 1; i < accessNamespaces; i++ {
		ns, err := b.namespace(ctx, fmt.Sprint("bound-", i))
		if err == nil {
			err = b.bindIn(ctx, ns, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) bindIn(ctx context.Context, ns string, measured bool) error {
	if b.bound[ns] {
		return nil
	}
	roles, bindings := b.collection(ns, rolesOf, ""), b.collection(ns, roleBindingsOf, "")
	err := b.each(ctx, accessRoles, func(c *client, i int) error {
		_, err := c.small(ctx, http.MethodPost, roles, fmt.Appendf(nil,
			`{"metadata":{"name":"role-%d"},"rules":[{"apiGroups":[""],"resources":["pods","configmaps"],"verbs":["get","list","create"]}]}`, i))
		return err
	})
	if err != nil {
		return err
	}
	err = b.each(ctx, accessRoleBinding, func(c *client, i int) error {
		user := fmt.Sprintf("%s-%d", ns, i)
		if measured && i == accessRoleBinding/2 {
			user = accessUser
		}
		_, err := c.small(ctx, http.MethodPost, bindings, fmt.Appendf(nil,
			`{"metadata":{"name":"binding-%d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"role-%d"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`,
			i, i%accessRoles, user))
		return err
	})
	b.bound[ns] = err == nil
	return err
}

// unbind deletes the roles and bindings of a namespace.
func (b *bed) unbind(ctx context.Context, ns string) error {
	if _, there := b.bound[ns]; !there {
		return nil
	}
	delete(b.bound, ns)
	if err := b.empty(ctx, ns, roleBindingsOf); err != nil {
		return err
	}
	return b.empty(ctx, ns, rolesOf)
}
