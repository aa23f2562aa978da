// run cpu: fold_constants
// exp(0) + 1 is known, and what it was made of goes; what depends on x is not.
func.func @main(%x: f32[n]) -> f32[n] attributes {heddle.symbols = {n = [1, 9]}} {
  %zero = constant() {value = dense<0.0> : tensor<f32>} : () -> f32[]
  %one = constant() {value = dense<1.0> : tensor<f32>} : () -> f32[]
  %a = exp(%zero) : (f32[]) -> f32[]
  %b = add(%a, %one) : (f32[], f32[]) -> f32[]
  %c = mul(%x, %b) : (f32[n], f32[]) -> f32[n]
  return %c : f32[n]
}

// gives
module {
  func.func @main(%arg0: f32[n]) -> f32[n] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = constant() {value = dense<2.000000e+00> : tensor<f32>} : () -> f32[]
    %1 = mul(%arg0, %0) : (f32[n], f32[]) -> f32[n]
    return %1 : f32[n]
  }
}
