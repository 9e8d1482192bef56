package main

import (
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func objectMeta(namespace, name string, now time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         namespace,
		Name:              name,
		UID:               types.UID(uuid.NewString()),
		Generation:        1,
		CreationTimestamp: metav1.NewTime(now),
	}
}

// ownerUID is the UID of a ReplicaSet by its name: pods and ReplicaSets of
// different runs then agree without reading each other.
func ownerUID(namespace, name string) types.UID {
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte("replicaset/"+namespace+"/"+name)).String())
}

// managed is one writer's entry in managedFields. These entries are a third of
// a real object, and whoever reads objects pays for them: they must not be left out.
func managed(manager, subresource string, now time.Time, fields []byte) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(now)
	return metav1.ManagedFieldsEntry{
		Manager:     manager,
		Operation:   metav1.ManagedFieldsOperationUpdate,
		APIVersion:  "v1",
		Time:        &at,
		FieldsType:  "FieldsV1",
		FieldsV1:    &metav1.FieldsV1{Raw: fields},
		Subresource: subresource,
	}
}

// fieldSet writes FieldsV1 JSON: dotted paths become nested objects. A list
// item's key contains dots and quotes, so paths come as slices. Paths with the
// same beginning must be neighbours.
func fieldSet(paths ...[]string) []byte {
	var out strings.Builder
	writeLevel(&out, paths, 0)
	return []byte(out.String())
}

func writeLevel(out *strings.Builder, paths [][]string, depth int) {
	out.WriteByte('{')
	for start, first := 0, true; start < len(paths); {
		name := ""
		if depth < len(paths[start]) {
			name = paths[start][depth]
		}
		end := start
		for end < len(paths) && depth < len(paths[end]) && paths[end][depth] == name {
			end++
		}
		if end == start { // the path ends here; its children, if any, follow
			start++
			continue
		}
		if !first {
			out.WriteByte(',')
		}
		first = false
		out.WriteString(quote(name) + ":")
		writeLevel(out, paths[start:end], depth+1)
		start = end
	}
	out.WriteByte('}')
}

func quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `\"`) + `"`
}

// each returns one path per leaf, all below the same parent.
func each(parent []string, leaves ...string) [][]string {
	paths := make([][]string, 0, len(leaves))
	for _, leaf := range leaves {
		path := append(append([]string{}, parent...), leaf)
		paths = append(paths, path)
	}
	return paths
}
