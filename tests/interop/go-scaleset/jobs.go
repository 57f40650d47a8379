package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/actions/scaleset"
	"github.com/actions/scaleset/listener"
)

func (w *world) queue(ctx context.Context, label string, count int) error {
	return w.administer(ctx, "POST", "/_simulator/jobs",
		map[string]any{"repository": "acme/app", "labels": []string{label}, "count": count}, nil)
}

const maxRunners = 8

// jobs has the real listener follow a scale set while count jobs go through it on real runner programs, whose command
// line is in the environment variable RUNNER.
func (w *world) jobs(ctx context.Context, count int) error {
	set, err := w.newScaleSet(ctx, "jobs")
	if err != nil {
		return err
	}
	session, err := w.client.MessageSessionClient(ctx, set.ID, "host")
	if err != nil {
		return err
	}
	loop, err := listener.New(session, listener.Config{ScaleSetID: set.ID, MaxRunners: maxRunners})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scaler := &scaler{world: w, set: set.ID, want: count, done: cancel, alive: map[int]bool{}}
	if err := w.queue(ctx, "jobs", count); err != nil {
		return err
	}
	err = loop.Run(ctx, scaler)
	if err := scaler.removeSurplus(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	scaler.running.Wait()
	if !errors.Is(err, context.Canceled) || scaler.completed < count {
		return fmt.Errorf("%d of %d jobs completed: %w", scaler.completed, count, err)
	}
	if err := session.Close(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	report("jobs", map[string]any{
		"started": scaler.started, "completed": scaler.completed, "succeeded": scaler.succeeded,
		"most": scaler.most, "failures": scaler.failures,
	})
	return nil
}

// scaler starts a runner for each job that the listener asks a runner for, up to maxRunners at a time.
type scaler struct {
	world *world
	set   int
	want  int
	done  context.CancelFunc

	running sync.WaitGroup
	mutex   sync.Mutex
	alive   map[int]bool
	closing bool

	runners, started, completed, succeeded, most int
	failures                                     []string
}

func (s *scaler) HandleJobStarted(_ context.Context, job *scaleset.JobStarted) error {
	if job.RunnerName == "" || job.RunnerID == 0 || job.ScaleSetAssignTime.IsZero() || job.RunnerAssignTime.IsZero() {
		return fmt.Errorf("an incomplete message: %+v", job)
	}
	s.started++
	return nil
}

func (s *scaler) HandleJobCompleted(_ context.Context, job *scaleset.JobCompleted) error {
	s.completed++
	if job.Result == "succeeded" && !job.FinishTime.IsZero() {
		s.succeeded++
	}
	if s.completed == s.want {
		s.done()
	}
	return nil
}

func (s *scaler) HandleDesiredRunnerCount(ctx context.Context, count int) (int, error) {
	s.most = max(s.most, count)
	target := min(count, maxRunners)
	for s.count() < target {
		s.runners++
		config, err := s.world.jit(ctx, fmt.Sprintf("runner-%d", s.runners), s.set)
		if err != nil {
			return 0, err
		}
		s.mutex.Lock()
		s.alive[config.Runner.ID] = true
		s.mutex.Unlock()
		s.running.Add(1)
		go s.runOne(config.Runner.ID, config.EncodedJITConfig)
	}
	return target, nil
}

func (s *scaler) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.alive)
}

// removeSurplus takes the registrations of runners that wait for a job, which ends their programs.
func (s *scaler) removeSurplus(ctx context.Context) error {
	s.mutex.Lock()
	s.closing = true
	ids := slices.Collect(maps.Keys(s.alive))
	s.mutex.Unlock()
	for _, id := range ids {
		err := s.world.client.RemoveRunner(ctx, int64(id))
		if err != nil && !errors.Is(err, scaleset.RunnerNotFoundError) {
			return err
		}
	}
	return nil
}

func (s *scaler) runOne(id int, config string) {
	defer s.running.Done()
	// The shell splits RUNNER into words.
	command := exec.Command("sh", "-c", "exec "+os.Getenv("RUNNER"))
	command.Env = append(os.Environ(), "ACTIONS_RUNNER_INPUT_JITCONFIG="+config)
	output, err := command.CombinedOutput()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.alive, id)
	if err != nil && !s.closing {
		s.failures = append(s.failures, fmt.Sprintf("%v: %s", err, output))
	}
}
