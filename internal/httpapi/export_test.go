package httpapi

import "orch/api"

// DecodeNewTask is what POST /tasks does with a body.
func DecodeNewTask(raw []byte) (NewTask, error) {
	var body api.NewTask
	if err := decodeBody(raw, &body); err != nil {
		return NewTask{}, err
	}
	return newTask(body)
}
