package main

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func (c *check) patches() {
	client := c.typed.CoreV1().ConfigMaps(c.namespace)
	created, err := client.Create(c.ctx, newConfigMap("patched", map[string]string{"a": "1", "b/": "2"}), metav1.CreateOptions{})
	c.refused(apierrors.IsInvalid, err, "a bad key")
	created, err = client.Create(c.ctx, newConfigMap("patched", map[string]string{"a": "1", "b": "2"}), metav1.CreateOptions{})
	c.must(err, "creating")
	patch := func(kind types.PatchType, content string) (*corev1.ConfigMap, error) {
		return client.Patch(c.ctx, "patched", kind, []byte(content), metav1.PatchOptions{})
	}
	patched, err := patch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"},
		{"op":"replace","path":"/data/a","value":"3"},{"op":"add","path":"/metadata/labels","value":{"x/y":"z"}},
		{"op":"move","from":"/data/b","path":"/data/c"},{"op":"remove","path":"/metadata/labels/x~1y"}]`)
	c.must(err, "a JSON patch")
	c.expect(patched.Data["a"] == "3" && patched.Data["c"] == "2" && len(patched.Data) == 2 && len(patched.Labels) == 0,
		"after a JSON patch: %+v", patched)
	_, err = patch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"}]`)
	c.refused(apierrors.IsInvalid, err, "a test that fails")
	_, err = patch(types.JSONPatchType, `[{"op":"remove","path":"/data/missing"}]`)
	c.refused(apierrors.IsInvalid, err, "removing what isn't there")
	_, err = patch(types.JSONPatchType, `{"data":{}}`)
	c.refused(apierrors.IsBadRequest, err, "a JSON patch that is none")
	_, err = patch(types.MergePatchType, `[]`)
	c.refused(apierrors.IsBadRequest, err, "a merge patch that is none")

	patched, err = patch(types.MergePatchType, `{"data":{"a":null,"d":"4"},"metadata":{"annotations":{"n":"1"}}}`)
	c.must(err, "a merge patch")
	c.expect(len(patched.Data) == 2 && patched.Data["d"] == "4" && patched.Annotations["n"] == "1", "after it: %+v", patched)
	same, err := patch(types.MergePatchType, `{"data":{"d":"4"}}`)
	c.must(err, "a merge patch that changes nothing")
	c.expect(same.ResourceVersion == patched.ResourceVersion, "it made version %s", same.ResourceVersion)
	_, err = patch(types.MergePatchType, `{"metadata":{"resourceVersion":"`+created.ResourceVersion+`"},"data":{"d":"5"}}`)
	c.refused(apierrors.IsConflict, err, "a patch of another version")
	_, err = patch(types.MergePatchType, `{"metadata":{"uid":"another"},"data":{"d":"5"}}`)
	c.expect(apierrors.IsConflict(err) || apierrors.IsInvalid(err), "a patch of another object: %v", err)
	_, err = patch(types.MergePatchType, `{"data":{"d":5}}`)
	c.expect(apierrors.IsBadRequest(err) || apierrors.IsInvalid(err), "a patch to a wrong type: %v", err)
	_, err = client.Patch(c.ctx, "missing", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	c.refused(apierrors.IsNotFound, err, "a patch of nothing")
	c.strategicPatches()
}

func (c *check) strategicPatches() {
	client := c.typed.CoreV1().Pods(c.namespace)
	before, err := client.Create(c.ctx, newPod("patched"), metav1.CreateOptions{})
	c.must(err, "creating a pod")
	after := before.DeepCopy()
	after.Spec.Containers[1].Image = "helper:2"
	after.Spec.Tolerations = append(after.Spec.Tolerations, corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists})
	after.Finalizers = []string{"example.com/hold"}
	after.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: before.Name, UID: before.UID}}
	patched := c.patchPod(before, after)
	c.expect(len(patched.Spec.Containers) == 2 && patched.Spec.Containers[0].Image == "runner:1" &&
		patched.Spec.Containers[1].Image == "helper:2", "its containers: %+v", patched.Spec.Containers)
	c.expect(slices.ContainsFunc(patched.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "spot" }),
		"its tolerations: %+v", patched.Spec.Tolerations)
	c.expect(slices.Equal(patched.Finalizers, []string{"example.com/hold"}), "its finalizers: %v", patched.Finalizers)
	c.expect(len(patched.OwnerReferences) == 1, "its owners: %v", patched.OwnerReferences)

	after = patched.DeepCopy()
	after.Finalizers, after.OwnerReferences, after.Labels = nil, nil, map[string]string{"a": "b"}
	patched = c.patchPod(patched, after)
	c.expect(len(patched.Finalizers) == 0 && len(patched.OwnerReferences) == 0 && patched.Labels["a"] == "b",
		"after taking away: %+v", patched.ObjectMeta)

	running := patched.DeepCopy()
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.PodInitialized} {
		running.Status.Conditions = append(running.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse})
	}
	running = c.patchPod(patched, running, "status")
	ready := running.DeepCopy()
	ready.Status.Conditions[0].Status = corev1.ConditionTrue
	ready = c.patchPod(running, ready, "status")
	c.expect(len(ready.Status.Conditions) == 2 && ready.Status.Conditions[0].Status == corev1.ConditionTrue &&
		ready.Status.Conditions[1].Status == corev1.ConditionFalse, "its conditions: %+v", ready.Status.Conditions)
	_, err = client.Patch(c.ctx, "patched", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"$patch":"replace","c":"d"}},"spec":{"containers":[{"name":"helper","image":"helper:3"}]}}`),
		metav1.PatchOptions{})
	c.must(err, "a patch with a directive")
	found, err := client.Get(c.ctx, "patched", metav1.GetOptions{})
	c.must(err, "getting")
	c.expect(len(found.Labels) == 1 && found.Labels["c"] == "d" && found.Spec.Containers[1].Image == "helper:3", "it is %+v", found)
}

// patchPod sends what client-go makes of the difference.
func (c *check) patchPod(before, after *corev1.Pod, subresources ...string) *corev1.Pod {
	old, err := json.Marshal(before)
	c.must(err, "encoding")
	changed, err := json.Marshal(after)
	c.must(err, "encoding")
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, changed, corev1.Pod{})
	c.must(err, "making a patch")
	patched, err := c.typed.CoreV1().Pods(c.namespace).Patch(
		c.ctx, before.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresources...)
	c.must(err, "patching with %s", patch)
	return patched
}
