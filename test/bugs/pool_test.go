package bugs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Pool is a number of shards, which are ConfigMaps.
type Pool = Custom[PoolSpec, PoolStatus]

// PoolSpec is the desired state.
type PoolSpec struct {
	Shards int `json:"shards"`
}

// PoolStatus is the observed state.
type PoolStatus struct {
	Created int      `json:"created"`
	Shards  []string `json:"shards,omitempty"`
}

const (
	// Intermediate state: the number of shards is counted in the status. A crash between a create and the
	// status makes a shard too many.
	countInStatus bug = "created shards are counted in the status"
	// Hot loop: the status lists the shards in an order that is another one each time, as that of a map:
	// scylladb/scylla-operator#3337, mariadb-operator/mariadb-operator#1794, temporalio/temporal-worker-controller#415.
	orderChanges bug = "the status has the shards in another order each time"
	// Lost response: the create of an object with a generated name is repeated, and there are two.
	generatedNameRetried bug = "the create of an object with a generated name is repeated"
	// Stale state: the shards that a former specification does not have are deleted by their names:
	// pravega/zookeeper-operator#314, instaclustr/cassandra-operator#407.
	scaleDownFromCache bug = "the number of shards in the cache decides what is deleted"
)

const (
	poolName = "example.com/pool"
	// grownShards is the number that grower sets.
	grownShards = 4
)

// pools is the operator of pools.
type pools struct {
	client.Client
	live client.Reader
	bug  bug
	turn int // with orderChanges
}

func (r *pools) setUp(m ctrl.Manager) error {
	r.Client, r.live = m.GetClient(), m.GetAPIReader()
	return ctrl.NewControllerManagedBy(m).For(&Pool{}).Owns(&corev1.ConfigMap{}).WithOptions(options()).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *pools) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	var p Pool
	if err := r.Get(ctx, q.NamespacedName, &p); err != nil || !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var list corev1.ConfigMapList
	if err := r.List(ctx, &list, client.InNamespace(p.Namespace), client.MatchingLabels{poolName: p.Name}); err != nil {
		return ctrl.Result{}, err
	}
	shards := map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		shards[list.Items[i].Name] = &list.Items[i]
	}
	if err := r.grow(ctx, &p, shards); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.shrink(ctx, &p, shards); err != nil {
		return ctrl.Result{}, err
	}
	if r.bug == countInStatus || r.bug == generatedNameRetried {
		return ctrl.Result{}, nil // the names are generated
	}
	names := slices.Sorted(maps.Keys(shards))
	if r.bug == orderChanges && len(names) > 1 {
		r.turn = (r.turn + 1) % len(names)
		names = slices.Concat(names[r.turn:], names[:r.turn])
	}
	if p.Status.Created == len(names) && slices.Equal(p.Status.Shards, names) {
		return ctrl.Result{}, nil
	}
	p.Status = PoolStatus{Created: len(names), Shards: names}
	return ctrl.Result{}, r.Status().Update(ctx, &p)
}

// grow creates the shards that do not exist.
func (r *pools) grow(ctx context.Context, p *Pool, shards map[string]*corev1.ConfigMap) error {
	if r.bug == countInStatus {
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for p.Status.Created < p.Spec.Shards {
			if err := r.create(ctx, p, "", shards); err != nil {
				return err
			}
			p.Status.Created++
			if err := r.Status().Update(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
	if r.bug == generatedNameRetried {
		var list corev1.ConfigMapList
		if err := r.live.List(ctx, &list, client.InNamespace(p.Namespace), client.MatchingLabels{poolName: p.Name}); err != nil {
			return err
		}
		for range p.Spec.Shards - len(list.Items) {
			again := func(error) bool { return true }
			if err := retry.OnError(retry.DefaultRetry, again, func() error { return r.create(ctx, p, "", shards) }); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range p.Spec.Shards {
		name := shardName(p, i)
		if shards[name] != nil {
			continue
		}
		err := r.create(ctx, p, name, shards)
		if apierrors.IsAlreadyExists(err) { // the cache of shards is older than the one of pools
			c := &corev1.ConfigMap{}
			err = r.live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, c)
			shards[name] = c
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func shardName(p *Pool, i int) string { return fmt.Sprintf("%s-%d", p.Name, i) }

// create creates a shard, with a generated name if it has none.
func (r *pools) create(ctx context.Context, p *Pool, name string, shards map[string]*corev1.ConfigMap) error {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: map[string]string{poolName: p.Name}}}
	if name == "" {
		c.GenerateName = p.Name + "-"
	}
	if err := controllerutil.SetControllerReference(p, c, scheme); err != nil {
		return err
	}
	if err := r.Create(ctx, c); err != nil {
		return err
	}
	shards[c.Name] = c
	return nil
}

// shrink deletes the shards that are not wanted. They have data, so that is decided by the newest
// state.
func (r *pools) shrink(ctx context.Context, p *Pool, shards map[string]*corev1.ConfigMap) error {
	if r.bug == scaleDownFromCache {
		for i := p.Spec.Shards; ; i++ {
			c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: shardName(p, i)}}
			if err := r.Delete(ctx, c); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
	}
	for name, c := range shards {
		i, err := strconv.Atoi(strings.TrimPrefix(name, p.Name+"-"))
		if err != nil || i < p.Spec.Shards {
			continue
		}
		if err := newest(ctx, r.live, p); err != nil {
			return err
		}
		if err := r.Delete(ctx, c, client.Preconditions{UID: &c.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
		delete(shards, name)
	}
	return nil
}
