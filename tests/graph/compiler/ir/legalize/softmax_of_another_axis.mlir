// run cpu: legalize
// Kernels take the last axis.
func.func @main(%x: f32[n, 8, 4]) -> f32[n, 8, 4] attributes {heddle.symbols = {n = [1, 9]}} {
  %a = softmax(%x) {axis = 2 : i64} : (f32[n, 8, 4]) -> f32[n, 8, 4]
  %b = softmax(%a) {axis = 1 : i64} : (f32[n, 8, 4]) -> f32[n, 8, 4]
  return %b : f32[n, 8, 4]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8, 4]) -> f32[n, 8, 4] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = softmax(%arg0) {axis = 2 : i64} : (f32[n, 8, 4]) -> f32[n, 8, 4]
    %1 = transpose(%0) {permutation = array<i64: 0, 2, 1>} : (f32[n, 8, 4]) -> f32[n, 4, 8]
    %2 = softmax(%1) {axis = 2 : i64} : (f32[n, 4, 8]) -> f32[n, 4, 8]
    %3 = transpose(%2) {permutation = array<i64: 0, 2, 1>} : (f32[n, 4, 8]) -> f32[n, 8, 4]
    return %3 : f32[n, 8, 4]
  }
}
