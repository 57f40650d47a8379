package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func (c *check) typedObjects() {
	c.configMapsByType()
	c.secretsByType()
	c.leasesByType()
	namespace, err := c.typed.CoreV1().Namespaces().Get(c.ctx, c.namespace, metav1.GetOptions{})
	c.must(err, "the namespace")
	c.expect(namespace.Status.Phase == corev1.NamespaceActive, "its phase is %q", namespace.Status.Phase)
	c.expect(len(namespace.Spec.Finalizers) == 1, "its finalizers are %v", namespace.Spec.Finalizers)
	c.expect(namespace.Labels[corev1.LabelMetadataName] == c.namespace, "its labels are %v", namespace.Labels)
	c.expect(namespace.GenerateName == "client-go-", "it was generated from %q", namespace.GenerateName)
}

func (c *check) configMapsByType() {
	client := c.typed.CoreV1().ConfigMaps(c.namespace)
	wanted := newConfigMap("first", map[string]string{"key": "value", "text": "a\n<b>&é\u2028"})
	wanted.BinaryData = map[string][]byte{"bytes": {0, 1, 254, 255}}
	wanted.Annotations = map[string]string{"example.com/note": "n"}
	created, err := client.Create(c.ctx, wanted, metav1.CreateOptions{})
	c.must(err, "creating")
	c.expect(created.UID != "" && created.ResourceVersion != "" && created.Namespace == c.namespace, "created %+v", created)
	c.expect(time.Since(created.CreationTimestamp.Time).Abs() < time.Minute, "created at %v", created.CreationTimestamp)
	c.expect(equality.Semantic.DeepEqual(created.Data, wanted.Data), "its data: %v", created.Data)
	c.expect(equality.Semantic.DeepEqual(created.BinaryData, wanted.BinaryData), "its bytes: %v", created.BinaryData)
	found, err := client.Get(c.ctx, "first", metav1.GetOptions{})
	c.must(err, "getting")
	c.expect(equality.Semantic.DeepEqual(found, created), "got %+v, created %+v", found, created)

	_, err = client.Create(c.ctx, wanted, metav1.CreateOptions{})
	c.refused(apierrors.IsAlreadyExists, err, "creating again")
	changed := found.DeepCopy()
	changed.Data["key"] = "other"
	updated, err := client.Update(c.ctx, changed, metav1.UpdateOptions{})
	c.must(err, "updating")
	c.expect(updated.Data["key"] == "other" && updated.ResourceVersion != found.ResourceVersion, "updated %+v", updated)
	_, err = client.Update(c.ctx, found, metav1.UpdateOptions{})
	c.refused(apierrors.IsConflict, err, "updating what has changed")
	same, err := client.Update(c.ctx, updated, metav1.UpdateOptions{})
	c.must(err, "updating without a change")
	c.expect(same.ResourceVersion == updated.ResourceVersion, "a change of nothing has version %s", same.ResourceVersion)

	wrong := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
	c.refused(apierrors.IsConflict, client.Delete(c.ctx, "first", wrong), "deleting another with that name")
	right := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &updated.UID, ResourceVersion: &updated.ResourceVersion}}
	c.must(client.Delete(c.ctx, "first", right), "deleting")
	_, err = client.Get(c.ctx, "first", metav1.GetOptions{})
	c.refused(apierrors.IsNotFound, err, "getting what is deleted")
	c.refused(apierrors.IsNotFound, client.Delete(c.ctx, "first", metav1.DeleteOptions{}), "deleting again")

	generated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}
	one, err := client.Create(c.ctx, generated, metav1.CreateOptions{})
	c.must(err, "generating a name")
	other, err := client.Create(c.ctx, generated, metav1.CreateOptions{})
	c.must(err, "generating a name again")
	c.expect(one.Name != other.Name && len(one.Name) == len("made-")+5, "generated %q and %q", one.Name, other.Name)
}

func (c *check) secretsByType() {
	client := c.typed.CoreV1().Secrets(c.namespace)
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "jit"},
		Data:       map[string][]byte{"a": {0, 255}},
		StringData: map[string]string{"b": "plain"},
	}
	created, err := client.Create(c.ctx, wanted, metav1.CreateOptions{})
	c.must(err, "creating a secret")
	c.expect(created.Type == corev1.SecretTypeOpaque && len(created.StringData) == 0, "a secret of type %q", created.Type)
	c.expect(string(created.Data["b"]) == "plain" && string(created.Data["a"]) == "\x00\xff", "its data: %v", created.Data)
	created.Immutable = ptr.To(true)
	fixed, err := client.Update(c.ctx, created, metav1.UpdateOptions{})
	c.must(err, "making it immutable")
	fixed.Data["a"] = []byte("other")
	_, err = client.Update(c.ctx, fixed, metav1.UpdateOptions{})
	c.refused(apierrors.IsInvalid, err, "changing what is immutable")
	fixed.ResourceVersion, fixed.Data["a"] = "", []byte{0, 255}
	fixed.Labels = map[string]string{"app": "runner"}
	_, err = client.Update(c.ctx, fixed, metav1.UpdateOptions{})
	c.must(err, "an update of whatever version there is")
	list, err := client.List(c.ctx, metav1.ListOptions{FieldSelector: "type=Opaque", LabelSelector: "app in (runner,other)"})
	c.must(err, "listing secrets")
	c.expect(len(list.Items) == 1 && list.Items[0].Name == "jit" && list.ResourceVersion != "", "listed %v", list)
}

func (c *check) leasesByType() {
	client := c.typed.CoordinationV1().Leases(c.namespace)
	now := metav1.NewMicroTime(time.Now())
	wanted := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "leader"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To("me"),
			LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime:            &now,
		},
	}
	created, err := client.Create(c.ctx, wanted, metav1.CreateOptions{})
	c.must(err, "creating a lease")
	c.expect(created.Spec.RenewTime.Truncate(time.Microsecond).Equal(now.Truncate(time.Microsecond)),
		"renewed at %v, not %v", created.Spec.RenewTime, now)
	created.Spec.LeaseDurationSeconds = ptr.To(int32(0))
	_, err = client.Update(c.ctx, created, metav1.UpdateOptions{})
	c.refused(apierrors.IsInvalid, err, "a lease of no duration")
	c.expect(apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid), "its causes: %v", err)
}

func (c *check) pods() {
	client := c.typed.CoreV1().Pods(c.namespace)
	created, err := client.Create(c.ctx, newPod("runner"), metav1.CreateOptions{})
	c.must(err, "creating")
	spec := created.Spec
	c.expect(spec.RestartPolicy == corev1.RestartPolicyAlways && *spec.TerminationGracePeriodSeconds == 30 &&
		spec.Containers[0].ImagePullPolicy == corev1.PullIfNotPresent, "its defaults: %+v", spec)
	c.expect(created.Status.Phase == corev1.PodPending && created.Generation == 1, "created %+v", created)
	changed := created.DeepCopy()
	changed.Spec.Containers[0].Env[0].Value = "2"
	_, err = client.Update(c.ctx, changed, metav1.UpdateOptions{})
	c.refused(apierrors.IsInvalid, err, "changing a variable")

	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "runner"},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-1"},
	}
	c.must(client.Bind(c.ctx, binding, metav1.CreateOptions{}), "binding")
	c.refused(apierrors.IsConflict, client.Bind(c.ctx, binding, metav1.CreateOptions{}), "binding again")
	bound, err := client.Get(c.ctx, "runner", metav1.GetOptions{})
	c.must(err, "getting")
	c.expect(bound.Spec.NodeName == "node-1", "bound to %q", bound.Spec.NodeName)
	c.expect(len(bound.Status.Conditions) == 1 && bound.Status.Conditions[0].Type == corev1.PodScheduled,
		"bound with conditions %+v", bound.Status.Conditions)

	now := metav1.Now().Rfc3339Copy()
	running := bound.DeepCopy()
	running.Spec.NodeName = "ignored"
	running.Status.Phase = corev1.PodRunning
	running.Status.StartTime = &now
	running.Status.PodIP = "10.0.0.9"
	running.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "runner", Image: "runner:1", ContainerID: "containerd://1", Ready: true, Started: ptr.To(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
	running, err = client.UpdateStatus(c.ctx, running, metav1.UpdateOptions{})
	c.must(err, "updating its status")
	c.expect(running.Spec.NodeName == "node-1" && running.Status.StartTime.Equal(&now) &&
		running.Status.ContainerStatuses[0].State.Running.StartedAt.Equal(&now), "running: %+v", running.Status)
	for selector, wanted := range map[string]int{
		"spec.nodeName=node-1,status.phase=Running": 1, "status.phase!=Running": 0, "status.podIP=10.0.0.9": 1,
		"metadata.name=runner": 1, "metadata.namespace=other": 0, "spec.restartPolicy==Never": 0,
	} {
		list, err := client.List(c.ctx, metav1.ListOptions{FieldSelector: selector})
		c.must(err, "listing by %s", selector)
		c.expect(len(list.Items) == wanted, "%d pods by %s", len(list.Items), selector)
	}

	c.must(client.Delete(c.ctx, "runner", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(7))}), "deleting")
	ending, err := client.Get(c.ctx, "runner", metav1.GetOptions{})
	c.must(err, "getting what is being deleted")
	c.expect(ending.DeletionTimestamp != nil && *ending.DeletionGracePeriodSeconds == 7, "it is %+v", ending.ObjectMeta)
	c.must(client.Delete(c.ctx, "runner", metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(ending.UID)),
	}), "deleting at once")
	_, err = client.Get(c.ctx, "runner", metav1.GetOptions{})
	c.refused(apierrors.IsNotFound, err, "getting what is deleted")
}
