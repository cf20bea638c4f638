package stub

import (
	"encoding/json"
	"strings"
)

// dialect is one way to ask a model.
type dialect struct {
	read  func(body []byte) Request
	write func(s *stream, a answer)
	// named means that events carry their type, done is what ends the stream.
	named bool
	done  string
}

func dialectOf(path string) (dialect, bool) {
	switch {
	case strings.HasSuffix(path, "/responses"):
		return dialect{read: readResponses, write: writeResponse, named: true}, true
	case strings.HasSuffix(path, "/chat/completions"):
		return dialect{read: readChat, write: writeChat, done: "[DONE]"}, true
	case strings.HasSuffix(path, "/v1/messages"):
		return dialect{read: readMessages, write: writeMessage, named: true}, true
	case strings.HasSuffix(path, ":streamGenerateContent"):
		return dialect{read: readContents, write: writeContent}, true
	default:
		return dialect{}, false
	}
}

// tool is a tool as any dialect offers it.
type tool struct {
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	FunctionDeclarations []tool `json:"functionDeclarations"` //nolint:tagliatelle // Google's word
}

func names(tools []tool) []string {
	var list []string
	for _, t := range tools {
		if name := t.Name + t.Function.Name; name != "" {
			list = append(list, name)
		}
		list = append(list, names(t.FunctionDeclarations)...)
	}
	return list
}

const (
	answerID = "answer-1"
	callID   = "call-1"
	model    = "stub"
)

func readResponses(body []byte) Request {
	var asked struct {
		Tools []tool `json:"tools"`
		Input []struct {
			Type string `json:"type"`
		} `json:"input"`
	}
	_ = json.Unmarshal(body, &asked) // what can't be read offers nothing
	request := Request{Tools: names(asked.Tools)}
	for _, item := range asked.Input {
		request.Answered = request.Answered || strings.HasSuffix(item.Type, "_call_output")
	}
	return request
}

func writeResponse(s *stream, a answer) {
	s.send("response.created", map[string]any{"response": map[string]any{"id": answerID}})
	item := map[string]any{
		"type": "message", "id": "item-1", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": a.text}},
	}
	if a.tool != "" {
		item = map[string]any{"type": "function_call", "id": "item-1", "call_id": callID, "name": a.tool, "arguments": a.arguments}
	}
	s.send("response.output_item.done", map[string]any{"output_index": 0, "item": item})
	s.send("response.completed", map[string]any{"response": map[string]any{"id": answerID, "usage": map[string]any{
		"input_tokens": InputTokens, "input_tokens_details": map[string]any{"cached_tokens": CachedTokens},
		"output_tokens": OutputTokens, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		"total_tokens": InputTokens + OutputTokens,
	}}})
}

func readChat(body []byte) Request {
	var asked struct {
		Tools    []tool `json:"tools"`
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &asked) // what can't be read offers nothing
	request := Request{Tools: names(asked.Tools)}
	for _, message := range asked.Messages {
		request.Answered = request.Answered || message.Role == "tool"
	}
	return request
}

func writeChat(s *stream, a answer) {
	chunk := func(delta map[string]any, finish any) map[string]any {
		return map[string]any{
			"id": answerID, "object": "chat.completion.chunk", "created": 1, "model": model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		}
	}
	finish := "stop"
	delta := map[string]any{"role": "assistant", "content": a.text}
	if a.tool != "" {
		finish = "tool_calls"
		delta = map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
			"index": 0, "id": callID, "type": "function", "function": map[string]any{"name": a.tool, "arguments": a.arguments},
		}}}
	}
	s.send("", chunk(delta, nil))
	last := chunk(map[string]any{}, finish)
	last["usage"] = map[string]any{
		"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens,
		"prompt_tokens_details": map[string]any{"cached_tokens": CachedTokens},
	}
	s.send("", last)
}

func readMessages(body []byte) Request {
	var asked struct {
		Tools    []tool `json:"tools"`
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &asked) // what can't be read offers nothing
	request := Request{Tools: names(asked.Tools)}
	for _, message := range asked.Messages {
		var blocks []struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(message.Content, &blocks) // a mere text holds no results
		for _, block := range blocks {
			request.Answered = request.Answered || block.Type == "tool_result"
		}
	}
	return request
}

func writeMessage(s *stream, a answer) {
	usage := map[string]any{
		"input_tokens": InputTokens - CachedTokens, "cache_read_input_tokens": CachedTokens, "cache_creation_input_tokens": 0, "output_tokens": 1,
	}
	s.send("message_start", map[string]any{"message": map[string]any{
		"id": answerID, "type": "message", "role": "assistant", "model": model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": usage,
	}})
	block, delta, stop := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": a.text}, "end_turn"
	if a.tool != "" {
		block = map[string]any{"type": "tool_use", "id": callID, "name": a.tool, "input": map[string]any{}}
		delta, stop = map[string]any{"type": "input_json_delta", "partial_json": a.arguments}, "tool_use"
	}
	s.send("content_block_start", map[string]any{"index": 0, "content_block": block})
	s.send("content_block_delta", map[string]any{"index": 0, "delta": delta})
	s.send("content_block_stop", map[string]any{"index": 0})
	s.send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": OutputTokens},
	})
	s.send("message_stop", map[string]any{})
}

func readContents(body []byte) Request {
	var asked struct {
		Tools    []tool `json:"tools"`
		Contents []struct {
			Parts []struct {
				Result json.RawMessage `json:"functionResponse"` //nolint:tagliatelle // Google's word
			} `json:"parts"`
		} `json:"contents"`
	}
	_ = json.Unmarshal(body, &asked) // what can't be read offers nothing
	request := Request{Tools: names(asked.Tools)}
	for _, content := range asked.Contents {
		for _, part := range content.Parts {
			request.Answered = request.Answered || part.Result != nil
		}
	}
	return request
}

func writeContent(s *stream, a answer) {
	part := map[string]any{"text": a.text}
	if a.tool != "" {
		part = map[string]any{"functionCall": map[string]any{"name": a.tool, "args": json.RawMessage(a.arguments)}}
	}
	s.send("", map[string]any{
		"candidates": []any{map[string]any{
			"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": []any{part}},
		}},
		"usageMetadata": map[string]any{
			"promptTokenCount": InputTokens, "cachedContentTokenCount": CachedTokens, "candidatesTokenCount": OutputTokens,
			"totalTokenCount": InputTokens + OutputTokens,
		},
		"modelVersion": model,
	})
}
