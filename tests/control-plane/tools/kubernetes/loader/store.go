package main

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// dialTimeout also bounds the first read: it tells a wrong address soon.
	dialTimeout = 5 * time.Second
	// writeTimeout bounds one write. A busy etcd stalls for seconds when its file grows.
	writeTimeout = 30 * time.Second
)

// storage is what the API server writes: "k8s\x00" and a protobuf envelope.
var storage = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func connect(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: dialTimeout, Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", endpoint, err)
	}
	probe, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := client.Get(probe, "health", clientv3.WithCountOnly()); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd at %s does not answer: %w", endpoint, err)
	}
	return client, nil
}

// create writes a record if nothing is stored under its key. One write is one
// etcd revision, as with the API server: a watch that resumes in the middle of
// a revision would lose the rest of it.
func create(ctx context.Context, client *clientv3.Client, r record) (bool, error) {
	var encoded bytes.Buffer
	if err := storage.Encode(r.object, &encoded); err != nil {
		return false, fmt.Errorf("cannot encode %s: %w", r.key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	answer, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(r.key), "=", 0)).
		Then(clientv3.OpPut(r.key, encoded.String())).
		Commit()
	if err != nil {
		return false, fmt.Errorf("cannot write %s: %w", r.key, err)
	}
	return answer.Succeeded, nil
}

// writeAll writes all records and tells how many. It stops at the first that
// exists: to replace an object under a new UID is something no API server does,
// and it would teach watchers a lie.
func writeAll(ctx context.Context, client *clientv3.Client, workers int, records iter.Seq[record]) (int64, error) {
	var written atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan record, workers)
	group.Go(func() error {
		defer close(queue)
		for r := range records {
			select {
			case queue <- r:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			for r := range queue {
				created, err := create(ctx, client, r)
				if err != nil {
					return err
				}
				if !created {
					return fmt.Errorf("%s exists; choose another -prefix or an empty cluster", r.key)
				}
				written.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return written.Load(), err
}

// ensureNamespaces makes the namespaces that are missing.
func ensureNamespaces(ctx context.Context, client *clientv3.Client, names []string, now time.Time) error {
	for _, name := range names {
		meta := objectMeta("", name, now)
		meta.Labels = map[string]string{corev1.LabelMetadataName: name}
		namespace := &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: meta,
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if _, err := create(ctx, client, record{"/registry/namespaces/" + name, namespace}); err != nil {
			return err
		}
	}
	return nil
}

// compactRevisionKey is where API servers tell each other what was compacted;
// each watches it to drop its own older snapshots.
const compactRevisionKey = "compact_rev_key"

// compact forgets all history up to now, as an API server does every five
// minutes, so that older resourceVersions are answered 410 Gone.
func compact(ctx context.Context, client *clientv3.Client) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now, err := client.Get(ctx, compactRevisionKey)
	if err != nil {
		return 0, fmt.Errorf("cannot read the current revision: %w", err)
	}
	revision := now.Header.Revision
	if _, err := client.Put(ctx, compactRevisionKey, strconv.FormatInt(revision, 10)); err != nil {
		return 0, fmt.Errorf("cannot announce the compaction: %w", err)
	}
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return 0, fmt.Errorf("cannot compact at revision %d: %w", revision, err)
	}
	return revision, nil
}
