// run cpu: sink
// A transpose that stays for another reader, and one that would be wider, stay where they are.
func.func @main(%x: f32[n, 5, 8], %y: i8[n, 5, 8]) -> (f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
  %r = softmax(%x) {axis = 2 : i64} : (f32[n, 5, 8]) -> f32[n, 5, 8]
  %a = transpose(%r) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
  %b = exp(%a) : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %s = neg(%y) : (i8[n, 5, 8]) -> i8[n, 5, 8]
  %c = transpose(%s) {permutation = array<i64: 0, 2, 1>} : (i8[n, 5, 8]) -> i8[n, 8, 5]
  %d = cast(%c) {dtype = f32} : (i8[n, 8, 5]) -> f32[n, 8, 5]
  return %a, %b, %d : f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]
}

// gives
module {
  func.func @main(%arg0: f32[n, 5, 8], %arg1: i8[n, 5, 8]) -> (f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = softmax(%arg0) {axis = 2 : i64} : (f32[n, 5, 8]) -> f32[n, 5, 8]
    %1 = transpose(%0) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
    %2 = exp(%1) : (f32[n, 8, 5]) -> f32[n, 8, 5]
    %3 = neg(%arg1) : (i8[n, 5, 8]) -> i8[n, 5, 8]
    %4 = transpose(%3) {permutation = array<i64: 0, 2, 1>} : (i8[n, 5, 8]) -> i8[n, 8, 5]
    %5 = cast(%4) {dtype = f32} : (i8[n, 8, 5]) -> f32[n, 8, 5]
    return %1, %2, %5 : f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]
  }
}
