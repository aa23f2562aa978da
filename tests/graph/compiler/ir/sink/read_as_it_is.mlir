// run cpu: sink
// A transpose that stays for another reader, and one that would be wider, stay where they are.
func.func @main(%x: f32[n, 5, 8], %y: i8[n, 5, 8]) -> (f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = transpose(%x) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
  %b = exp(%a) : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %c = transpose(%y) {permutation = array<i64: 0, 2, 1>} : (i8[n, 5, 8]) -> i8[n, 8, 5]
  %d = cast(%c) {dtype = f32} : (i8[n, 8, 5]) -> f32[n, 8, 5]
  return %a, %b, %d : f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]
}

// gives
module {
  func.func @main(%arg0: f32[n, 5, 8], %arg1: i8[n, 5, 8]) -> (f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = transpose(%arg0) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
    %1 = exp(%0) : (f32[n, 8, 5]) -> f32[n, 8, 5]
    %2 = transpose(%arg1) {permutation = array<i64: 0, 2, 1>} : (i8[n, 5, 8]) -> i8[n, 8, 5]
    %3 = cast(%2) {dtype = f32} : (i8[n, 8, 5]) -> f32[n, 8, 5]
    return %0, %1, %3 : f32[n, 8, 5], f32[n, 8, 5], f32[n, 8, 5]
  }
}
