// Command go-scaleset drives the real client of github.com/actions/scaleset, and its listener package, against a
// service whose config URL and token are given, and says what it saw, one line of JSON for each check.
//
//	go-scaleset <config URL> <token> <admin base URL> checks
//	go-scaleset <config URL> <token> <admin base URL> jobs <count>
//
// It exits with 1 when a check fails.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/actions/scaleset"
)

type world struct {
	client *scaleset.Client
	token  string
	admin  string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "go-scaleset:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: go-scaleset <config URL> <token> <admin base URL> checks | jobs <count>")
	}
	client, err := scaleset.NewClientWithPersonalAccessToken(scaleset.NewClientWithPersonalAccessTokenConfig{
		GitHubConfigURL:     args[0],
		PersonalAccessToken: args[1],
		SystemInfo:          scaleset.SystemInfo{System: "interop", Subsystem: "go-scaleset", Version: "1"},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	w := &world{client: client, token: args[1], admin: args[2]}
	switch {
	case args[3] == "checks":
		return w.checks(ctx)
	case args[3] == "jobs" && len(args) == 5:
		count, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		return w.jobs(ctx, count)
	default:
		return fmt.Errorf("unknown command %q", args[3:])
	}
}

func report(check string, details any) {
	line, err := json.Marshal(map[string]any{"check": check, "details": details})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// administer calls the simulator's own administration.
func (w *world) administer(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, w.admin+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, received)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(received, answer)
}

func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func contains(err error, text string) bool {
	return err != nil && strings.Contains(err.Error(), text)
}
