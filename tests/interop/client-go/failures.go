package main

import (
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

func (c *check) errors() {
	client := c.typed.CoreV1().ConfigMaps(c.namespace)
	_, err := client.Get(c.ctx, "missing", metav1.GetOptions{})
	c.refused(apierrors.IsNotFound, err, "a missing object")
	details := c.status(err).Details
	c.expect(details != nil && details.Name == "missing" && details.Kind == "configmaps", "its details: %+v", details)
	_, err = c.dynamic.Resource(actionsVersion.WithResource("nonsense")).List(c.ctx, metav1.ListOptions{})
	c.refused(apierrors.IsNotFound, err, "a missing resource")
	_, err = c.typed.CoreV1().ConfigMaps("no-such-namespace").Create(c.ctx, newConfigMap("a", nil), metav1.CreateOptions{})
	c.refused(apierrors.IsNotFound, err, "a missing namespace")

	_, err = client.Create(c.ctx, newConfigMap("Not_A_Name", map[string]string{"a/b": "c"}), metav1.CreateOptions{})
	c.refused(apierrors.IsInvalid, err, "a bad name")
	var fields []string
	for _, cause := range c.status(err).Details.Causes {
		fields = append(fields, cause.Field)
	}
	c.expect(strings.Join(fields, " ") == "metadata.name data[a/b]", "its causes: %+v", c.status(err).Details.Causes)
	_, err = client.Create(c.ctx, &corev1.ConfigMap{}, metav1.CreateOptions{})
	c.refused(apierrors.IsInvalid, err, "no name")
	_, err = client.List(c.ctx, metav1.ListOptions{LabelSelector: "a=b=c"})
	c.refused(apierrors.IsBadRequest, err, "a bad label selector")
	_, err = client.List(c.ctx, metav1.ListOptions{FieldSelector: "spec.nonsense=1"})
	c.refused(apierrors.IsBadRequest, err, "an unknown field selector")
	_, err = client.List(c.ctx, metav1.ListOptions{Continue: "nonsense"})
	c.refused(apierrors.IsBadRequest, err, "a bad continue token")
	_, err = client.Watch(c.ctx, metav1.ListOptions{ResourceVersion: "nonsense"})
	c.expect(err != nil, "a watch from a bad version")
	future := metav1.ListOptions{ResourceVersion: "9000000000000000000", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	_, err = client.List(c.ctx, future)
	c.refused(apierrors.IsTimeout, err, "a list of the future")
	c.expect(apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), "its causes: %v", err)

	large := newConfigMap("large", map[string]string{"a": strings.Repeat("x", 4<<20)})
	_, err = client.Create(c.ctx, large, metav1.CreateOptions{})
	c.refused(apierrors.IsRequestEntityTooLargeError, err, "a body of 4 MiB")
	large.Data["a"] = strings.Repeat("x", 2<<20)
	_, err = client.Create(c.ctx, large, metav1.CreateOptions{})
	c.refused(apierrors.IsInvalid, err, "a config map of 2 MiB")
	core := c.typed.CoreV1().RESTClient()
	err = core.Post().Namespace(c.namespace).Resource("configmaps").Name("a").Body([]byte("{}")).Do(c.ctx).Error()
	c.refused(apierrors.IsMethodNotSupported, err, "a post to an object")
	err = core.Put().Namespace(c.namespace).Resource("configmaps").Name("a").
		SetHeader("Content-Type", "text/plain").Body([]byte("a")).Do(c.ctx).Error()
	c.refused(apierrors.IsUnsupportedMediaType, err, "a text")
	err = core.Post().Namespace(c.namespace).Resource("configmaps").
		SetHeader("Content-Type", "application/json").Body([]byte("{")).Do(c.ctx).Error()
	c.refused(apierrors.IsBadRequest, err, "half an object")
	c.stranger()
}

// stranger is someone whose token is not known.
func (c *check) stranger() {
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = "not-the-token"
	client, err := kubernetes.NewForConfig(config)
	c.must(err, "a client")
	_, err = client.CoreV1().ConfigMaps(c.namespace).List(c.ctx, metav1.ListOptions{})
	c.refused(apierrors.IsUnauthorized, err, "a stranger")
	c.expect(c.status(err).Code == http.StatusUnauthorized, "a stranger: %+v", c.status(err))
}

func (c *check) status(err error) metav1.Status {
	var status apierrors.APIStatus
	c.expect(errors.As(err, &status), "an error without a status: %v", err)
	return status.Status()
}

// concurrentUpdates has many count in one object.
func (c *check) concurrentUpdates() {
	const workers, each = 8, 20
	client := c.typed.CoreV1().ConfigMaps(c.namespace)
	_, err := client.Create(c.ctx, newConfigMap("counter", map[string]string{}), metav1.CreateOptions{})
	c.must(err, "creating")
	backoff := retry.DefaultBackoff
	backoff.Steps = 100
	conflicts := make([]int, workers)
	c.together(workers, func(worker int) error {
		for range each {
			err := retry.RetryOnConflict(backoff, func() error {
				counter, err := client.Get(c.ctx, "counter", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if counter.Data == nil {
					counter.Data = map[string]string{}
				}
				counter.Data["count"] += "x"
				_, err = client.Update(c.ctx, counter, metav1.UpdateOptions{})
				if apierrors.IsConflict(err) {
					conflicts[worker]++
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	counter, err := client.Get(c.ctx, "counter", metav1.GetOptions{})
	c.must(err, "getting")
	c.expect(len(counter.Data["count"]) == workers*each, "counted to %d", len(counter.Data["count"]))
	total := 0
	for _, count := range conflicts {
		total += count
	}
	c.expect(total > 0, "nobody was in the way of another")
	c.details["conflicts"] = total
}
