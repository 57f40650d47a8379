package main

import (
	"bufio"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// podLogs reads what the other side has the pod "talking" write: "first", then "second" when it is asked to.
func (c *check) podLogs() {
	client := c.typed.CoreV1().Pods(c.namespace)
	_, err := client.Create(c.ctx, newPod("talking"), metav1.CreateOptions{})
	c.must(err, "creating")
	options := &corev1.PodLogOptions{Container: "runner"}
	_, err = client.GetLogs("missing", options).DoRaw(c.ctx)
	c.refused(apierrors.IsNotFound, err, "the log of a missing pod")
	_, err = client.GetLogs("talking", &corev1.PodLogOptions{}).DoRaw(c.ctx)
	c.refused(apierrors.IsBadRequest, err, "the log of whichever container")
	_, err = client.GetLogs("talking", &corev1.PodLogOptions{Container: "missing"}).DoRaw(c.ctx)
	c.refused(apierrors.IsBadRequest, err, "the log of a missing container")
	if !c.logs {
		c.skip("the server has no logs")
	}
	c.must(client.Bind(c.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "talking"}, Target: corev1.ObjectReference{Name: "node-1"},
	}, metav1.CreateOptions{}), "binding")
	following, err := client.GetLogs("talking", &corev1.PodLogOptions{
		Container: "runner", Follow: true, TailLines: ptr.To(int64(10)),
	}).Stream(c.ctx)
	c.must(err, "following the log")
	defer following.Close()
	lines := bufio.NewScanner(following)
	c.expect(lines.Scan() && lines.Text() == "first", "the first line: %q, %v", lines.Text(), lines.Err())
	c.ask("write the second line")
	c.expect(lines.Scan() && lines.Text() == "second", "the second line: %q, %v", lines.Text(), lines.Err())
	c.expect(!lines.Scan() && lines.Err() == nil, "more: %q, %v", lines.Text(), lines.Err())
	content, err := client.GetLogs("talking", options).DoRaw(c.ctx)
	c.must(err, "the whole log")
	c.expect(string(content) == "first\nsecond\n", "the whole log: %q", content)
}
